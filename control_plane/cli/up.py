"""`meridian up`: the whole stack on this machine."""

from enum import StrEnum
from typing import Annotated

import typer

from control_plane.cli.invocation import Invocation, command

app = typer.Typer(add_completion=False)


class Engine(StrEnum):
    """What stands in a datacenter: `sim` simulates the GPUs, everything else is real."""

    SIM = "sim"


Datacenters = Annotated[int, typer.Option("--datacenters", min=1, max=9, help="How many datacenters.")]
Edges = Annotated[int, typer.Option("--edges", min=1, max=10, help="How many edges.")]
Replicas = Annotated[int, typer.Option("--replicas", min=1, max=10, help="How many control planes.")]
PortBase = Annotated[int, typer.Option("--port-base", min=1024, max=32_567, help="The first port; all follow from it.")]
EngineOption = Annotated[Engine, typer.Option("--engine", help="What runs the models.")]


@command(app, "up")
def up(cli: Invocation, datacenters: Datacenters = 2, edges: Edges = 1, replicas: Replicas = 1,
       port_base: PortBase = 8700, engine: EngineOption = Engine.SIM) -> None:
    """Start everything here and keep it running until Ctrl-C."""
    from infra.local.up import up as start_stack

    start_stack(state=cli.settings().state.absolute(), port_base=port_base, datacenters=datacenters, edges=edges,
                replicas=replicas, engine=engine.value)
