"""`meridian audit`: who did what, and why."""

import typer

from control_plane.cli import render
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.operator import AuditView, Page

app = typer.Typer(add_completion=False)


@command(app, "audit")
def audit(cli: Invocation, limit: Limit = 50) -> None:
    """Show the audit log, the newest first."""
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
