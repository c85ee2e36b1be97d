"""`meridian freeze`, `meridian unfreeze` and `meridian automation`: whether automation may act."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from control_plane.cli import render
from control_plane.cli.documents import typed
from control_plane.cli.durations import duration
from control_plane.cli.errors import UsageFault
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.moves import Reason
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.operations import AutomationView, FreezeRequest, UnfreezeRequest

app = typer.Typer(add_completion=False)

PATH = "/operator/v1/automation"
For = Annotated[float | None, duration("--for", help="How long (default: until it is ended).")]
Until = Annotated[str | None, typer.Option(
    "--until", metavar="TIME", help="Until when, as 2026-11-30T18:00; without a zone it is this machine's.")]


@command(app, "freeze")
def freeze(cli: Invocation, reason: Reason, for_: For = None, until: Until = None) -> None:
    """Stop automation: no automatic failover, no planner. Operators go on."""
    if for_ is not None and until is not None:
        raise UsageFault("give --for or --until, not both")
    ttl_s = for_ if until is None else seconds_until(until, SystemClock().time_s())
    with cli.client() as client:
        seen = client.post(f"{PATH}/freeze", typed(FreezeRequest, reason=reason, ttl_s=ttl_s), AutomationView)
    cli.show(seen, [sheet(seen)])


@command(app, "unfreeze")
def unfreeze(cli: Invocation, reason: Reason) -> None:
    """Let automation go on; what it had begun goes on by itself."""
    with cli.client() as client:
        seen = client.post(f"{PATH}/unfreeze", typed(UnfreezeRequest, reason=reason), AutomationView)
    cli.show(seen, [sheet(seen)])


@command(app, "automation")
def automation(cli: Invocation) -> None:
    """Show whether automation may act."""
    with cli.client() as client:
        seen = client.get(PATH, AutomationView)
    cli.show(seen, [sheet(seen)])


def seconds_until(text: str, now_s: float) -> float:
    """How many seconds there are until a time.

    Raises:
        UsageFault: it is no time, or it has passed.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageFault(f"{text!r} is no time: write 2026-11-30T18:00, or 2026-11-30T18:00Z") from error
    left_s = at.timestamp() - now_s
    if left_s <= 0:
        raise UsageFault(f"{render.moment(at.astimezone(UTC))} has passed")
    return left_s


def sheet(seen: AutomationView) -> Sheet:
    """Whether automation may act, as a table."""
    if not seen.frozen:
        return Sheet([Column("AUTOMATION")], [[render.state("active", "goes on")]], "")
    until: Cell = render.moment(seen.until) if seen.until else "it is ended"
    rows: list[list[Cell]] = [
        ["until", until], ["why", seen.reason or render.UNOBSERVED], ["by", seen.by or render.UNOBSERVED]]
    return Sheet([Column("AUTOMATION"), Column("FROZEN", loose=True)], rows, "")
