"""`meridian recover`: the way back after Postgres was replaced by an older copy of itself."""

import time
from typing import Annotated

import typer

from control_plane.cli import render
from control_plane.cli.client import OperatorClient
from control_plane.cli.documents import typed
from control_plane.cli.durations import duration
from control_plane.cli.errors import StillRunning
from control_plane.cli.invocation import Invocation, command, flag
from control_plane.cli.moves import DryRun, Reason, Yes
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.recovery import LineageView, RecoveryRequest, RecoveryView

PATH = "/operator/v1/recovery"
LOOK_S = 0.5

app = typer.Typer(add_completion=False)

Force = Annotated[bool, flag("--force", help="Do it although no edge and no agent is ahead of the database.")]
Wait = Annotated[bool, flag("--wait", "-w", help="Wait until every live edge and agent follows.")]
Timeout = Annotated[float, duration("--timeout", help="How long --wait waits (default: 2m).")]


@command(app, "recover")
def recover(cli: Invocation, reason: Reason, force: Force = False, dry_run: DryRun = False, wait: Wait = False,
            timeout: Timeout = 120.0, yes: Yes = False) -> None:
    """Begin a new lineage after the database was restored from an older copy, so that edges and agents follow it again.

    Operations that were under way in the copy are closed as failed. Only for that day; needs the scope admin.
    """
    with cli.client() as client:
        planned = client.post(PATH, typed(RecoveryRequest, reason=reason, dry_run=True, force=force), RecoveryView,
                              idempotency_key="dry-run")
        if dry_run:
            cli.show(planned, _sheets(planned))
            return
        cli.say(_plan(planned))
        cli.confirm(f"Begin lineage {planned.lineage}? Whatever was done since the copy was made is given up.", yes)
        done = client.post(PATH, typed(RecoveryRequest, reason=reason, force=force), RecoveryView)
        if wait:
            _follow(client, done, timeout)
    cli.show(done, _sheets(done))
    cli.remark("Look at every datacenter that was on its way, and make anew the keys that were made since the copy: "
               "docs/operations/recovery.md")


def _follow(client: OperatorClient, done: RecoveryView, timeout_s: float) -> None:
    """Waits until every live machine follows.

    Raises:
        StillRunning: one does not, and the time is over.
    """
    clock = SystemClock()
    ends_s = clock.monotonic_s() + timeout_s
    while True:
        view = client.get(PATH, LineageView)
        left = {one.id for one in (*view.ahead, *view.behind)}
        if not left:
            return
        if clock.monotonic_s() >= ends_s:
            raise StillRunning(f"lineage {done.lineage} has begun, and {', '.join(sorted(left))} do not follow "
                               "yet: see meridian status")
        time.sleep(LOOK_S)


def _plan(planned: RecoveryView) -> str:
    before = planned.before
    return (f"{len(before.ahead)} edges and agents have seen more than this database holds (snapshot {before.lineage}."
            f"{before.version}). Lineage {planned.lineage} begins; {len(before.open_operations)} operations that were "
            f"under way in it are closed as failed, and {before.open_leases} blocks of money that it lent are closed.")


def _sheets(view: RecoveryView) -> list[Sheet]:
    begun = render.state("done", "begun") if view.recovered_at else render.state("planned")
    lineage: list[list[Cell]] = [[str(view.lineage), begun, str(len(view.before.open_operations)),
                                  str(view.before.open_leases)]]
    ahead: list[list[Cell]] = [[one.kind, render.short_id(one.id), one.seen] for one in view.before.ahead]
    return [Sheet([Column("LINEAGE", right=True), Column("STATE"), Column("OPERATIONS CLOSED", right=True),
                   Column("LEASES CLOSED", right=True)], lineage, ""),
            Sheet([Column("AHEAD"), Column("WHO"), Column("HAS SEEN", loose=True)], ahead, "Nobody was ahead.")]
