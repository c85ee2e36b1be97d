"""The commands that start one process each. They take their settings from MERIDIAN_ variables, and each imports only
its own process. Only an edge by itself has options."""

import importlib
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from control_plane.cli.invocation import Invocation, command
from control_plane.cli.main import start

MILLION = Decimal(1_000_000)

app = typer.Typer(add_completion=False)


def usd_per_token(text: str) -> Decimal:
    """A price as it is usually told, in USD per million tokens."""
    try:
        price = Decimal(text)
    except InvalidOperation:
        raise typer.BadParameter(f"{text!r} is no number of USD") from None
    if not price.is_finite() or price < 0:
        raise typer.BadParameter(f"{text!r} is no price")
    return price / MILLION


def price_option(name: str, what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, metavar="USD", parser=usd_per_token, rich_help_panel=ALONE, help=f"Price of a million {what}.")
    return option


ALONE = "An edge by itself, without a control plane"
Upstream = Annotated[str, typer.Option(
    "--upstream", metavar="URL", show_default=False, rich_help_panel=ALONE,
    help="The one server to relay to. Without it the edge gets all it needs from its control plane.")]
Key = Annotated[str, typer.Option(
    "--key", envvar="MERIDIAN_STANDALONE_KEY", show_default=False, rich_help_panel=ALONE,
    help="The API key that clients must send. The variable keeps it out of the process list.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65_535, rich_help_panel=ALONE, help="Port to listen on.")]
Host = Annotated[str, typer.Option("--host", rich_help_panel=ALONE, help="Address to listen on.")]
StateDir = Annotated[Path | None, typer.Option(
    "--state-dir", metavar="DIR", show_default=False, rich_help_panel=ALONE,
    help="Where the usage of every request is kept (default: edge-alone in the state directory).")]
Usage = Annotated[bool, typer.Option(
    "--usage", metavar=" ", show_default=False, rich_help_panel=ALONE,
    help="Run nothing; write every usage record that is kept, a JSON object a line.")]
InputUsd = Annotated[Decimal, price_option("--input-usd", "prompt tokens")]
CachedUsd = Annotated[Decimal | None, price_option(
    "--cached-usd", "prompt tokens found in the cache (default: as all prompt tokens)")]
OutputUsd = Annotated[Decimal, price_option("--output-usd", "generated tokens")]


@command(app, "control-plane")
def control_plane(cli: Invocation) -> None:
    """Run one replica of the control plane."""
    raise typer.Exit(start("control-plane"))


@dataclass(frozen=True, slots=True)
class Alone:
    """The options of an edge by itself, as they were typed."""

    upstream: str
    key: str
    port: int
    host: str
    state_dir: Path | None
    input_usd: Decimal
    cached_usd: Decimal | None
    output_usd: Decimal


def run_edge(cli: Invocation, told: Alone, usage: bool) -> None:
    """Runs one edge, under a control plane or by itself, or writes what one by itself has kept."""
    directory = told.state_dir or cli.settings().state / "edge-alone"
    if usage:
        alone = importlib.import_module("edge_api.standalone")
        for record in alone.records(directory):
            cli.write(msgspec.json.encode(record).decode())
        return
    if not told.upstream and (told.key or told.state_dir):
        raise typer.BadParameter("these options are for an edge by itself: --upstream says before which server")
    if not told.upstream:
        raise typer.Exit(start("edge"))
    if not told.key:
        raise typer.BadParameter("an edge by itself needs the key that its clients send: --key")
    alone = importlib.import_module("edge_api.standalone")
    alone.run(alone.Options(
        upstream=told.upstream, key=told.key, port=told.port, host=told.host, state_dir=directory,
        input_usd=told.input_usd, cached_input_usd=told.input_usd if told.cached_usd is None else told.cached_usd,
        output_usd=told.output_usd))


@command(app, "agent")
def agent(cli: Invocation) -> None:
    """Run the agent of one fleet."""
    raise typer.Exit(start("agent"))


@command(app, "worker")
def worker(cli: Invocation) -> None:
    """Run the background worker, with its beat."""
    raise typer.Exit(start("worker"))
