"""`meridian audit`: who did what, and why; and whether the log of it is whole."""

from typing import Annotated

import typer

from control_plane.cli import render
from control_plane.cli.errors import CommandFailed, UsageFault
from control_plane.cli.invocation import Invocation, Output, OutputOption, StateOption, command
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.audit import AuditView, ChainView
from control_plane.contracts.operator import Page

HASH_DIGITS = 64

app = typer.Typer(add_completion=False)
audit_app = typer.Typer(add_completion=False, invoke_without_command=True,
                        help="Show the audit log, the newest first, or verify it.")
app.add_typer(audit_app, name="audit")

ExpectHead = Annotated[str, typer.Option(
    "--expect-head", metavar="HASH", show_default=False,
    help="The head that an earlier verification told: it has to be in the log still, or the log was cut.")]


class ChainBroken(CommandFailed):
    """The audit log is not as it was written."""

    code = "audit_chain_broken"


@audit_app.callback()
def audit(ctx: typer.Context, limit: Limit = 50, state: StateOption = None, output: OutputOption = None) -> None:
    """Show the audit log, the newest first, or verify it."""
    before: Invocation = ctx.ensure_object(Invocation)
    cli = ctx.obj = Invocation(output or before.output, state or before.state)
    if ctx.invoked_subcommand is None:
        show_events(cli, limit)


@command(audit_app, "list")
def list_events(cli: Invocation, limit: Limit = 50) -> None:
    """Show the audit log, the newest first; with -o json what was before and after each change, too."""
    show_events(cli, limit)


@command(audit_app, "verify")
def verify(cli: Invocation, expect_head: ExpectHead = "") -> None:
    """Verify that no event was altered, removed, added or moved; tells the head's hash, to note elsewhere.

    Exit code 1 and the first broken event when the log is not as it was written.
    """
    expected = expect_head.strip().lower()
    if expected and (len(expected) != HASH_DIGITS or not set(expected) <= set("0123456789abcdef")):
        raise UsageFault(f"--expect-head takes the {HASH_DIGITS} hex digits that an earlier verification told")
    view = walked(cli, expected)
    if view.fault is not None:
        where = f"event {view.fault.seq}" + (f" ({view.fault.event_id})" if view.fault.event_id else "")
        raise ChainBroken(f"the audit log is broken at {where}: {view.fault.problem}. Keep a copy of the database as "
                          "it is, and compare it with a backup", numbers={"sound_events": str(view.seq)})
    cli.show(view, [Sheet([Column("EVENTS", right=True), Column("HEAD")], [[str(view.seq), view.hash]], "")])
    if cli.output is Output.TABLE:
        cli.remark("The log is as it was written. Note the head elsewhere: --expect-head proves later that nothing "
                   "before it was cut.")


def walked(cli: Invocation, expected: str) -> ChainView:
    """The whole chain's verdict, asked for stretch by stretch."""
    params = {"expect_head": expected} if expected else {}
    with cli.client() as client:
        while True:
            view = client.get("/operator/v1/audit/verify", ChainView, params)
            if view.is_complete:
                return view
            params |= {"after_seq": str(view.seq), "after_hash": view.hash}


def show_events(cli: Invocation, limit: int) -> None:
    with cli.client() as client:
        events = list(client.pages("/operator/v1/audit", Page[AuditView], limit))
    cli.show(Listing[AuditView](data=events), [audit_sheet(events)])


def audit_sheet(events: list[AuditView]) -> Sheet:
    columns = [Column("WHEN"), Column("WHO"), Column("WHAT", loose=True)]
    rows: list[list[Cell]] = [[event.at.astimezone().strftime("%m-%d %H:%M:%S"), render.short_id(event.actor),
                               _what(event)] for event in events]
    return Sheet(columns, rows, "Nothing has happened yet.")


def _what(event: AuditView) -> str:
    why = f" ({event.reason})" if event.reason else ""
    return f"{event.action} {render.short_id(event.target)}{why}"
