"""The commands that start one process each. They take their settings from MERIDIAN_ variables and no options, and each
imports only its own process."""

import typer

from control_plane.cli.invocation import Invocation, command
from control_plane.cli.main import start

app = typer.Typer(add_completion=False)


@command(app, "control-plane")
def control_plane(cli: Invocation) -> None:
    """Run one replica of the control plane."""
    raise typer.Exit(start("control-plane"))


@command(app, "edge")
def edge(cli: Invocation) -> None:
    """Run one edge."""
    raise typer.Exit(start("edge"))


@command(app, "agent")
def agent(cli: Invocation) -> None:
    """Run the agent of one fleet."""
    raise typer.Exit(start("agent"))


@command(app, "worker")
def worker(cli: Invocation) -> None:
    """Run the background worker, with its beat."""
    raise typer.Exit(start("worker"))
