"""`meridian operations`: what was ordered, how far it is, and how to stop it."""

from typing import Annotated

import typer
from rich.text import Text

from control_plane.cli import completing, render
from control_plane.cli.client import Params, segment
from control_plane.cli.durations import duration
from control_plane.cli.invocation import Invocation, Output, command
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.moves import GRACE_S, Yes
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.cli.steps import in_words
from control_plane.cli.waiting import MARKS, check_outcome, follow, summary
from control_plane.contracts.operations import FINAL, OperationState, OperationView, StepState
from control_plane.contracts.operator import Page

app = typer.Typer(add_completion=False, no_args_is_help=True, help="See, follow, pause and undo operations.")

PATH = "/operator/v1/operations"
NONE_YET = "No operations yet."
OperationId = Annotated[str, typer.Argument(
    metavar="ID", autocompletion=completing.operations,
    help="The operation, as meridian operations list names it.")]
StateFilter = Annotated[OperationState | None, typer.Option("--only", help="Only operations in this state.")]
Timeout = Annotated[float | None, duration(
    "--timeout", help="How long to wait (default: five minutes past the deadline).")]


@command(app, "list")
def list_operations(cli: Invocation, only: StateFilter = None, limit: Limit = 20) -> None:
    """List operations, the newest first."""
    params: Params = {"state": only.value} if only else {}
    with cli.client() as client:
        found = list(client.pages(PATH, Page[OperationView], limit, params))
    empty = f"No operation is {only.value}." if only else NONE_YET
    cli.show(Listing[OperationView](data=found), [list_sheet(found, empty)])


@command(app, "show")
def show(cli: Invocation, operation_id: OperationId) -> None:
    """Show one operation with its steps."""
    with cli.client() as client:
        operation = client.get(f"{PATH}/{segment(operation_id)}", OperationView)
    cli.show(operation, [detail_sheet(operation), steps_sheet(operation)])


@command(app, "watch")
def watch(cli: Invocation, operation_id: OperationId, timeout: Timeout = None) -> None:
    """Follow an operation until it has ended; the exit code says how."""
    with cli.client() as client:
        operation = client.get(f"{PATH}/{segment(operation_id)}", OperationView)
        allowed_s = (operation.deadline_at - operation.created_at).total_seconds() + GRACE_S
        operation = follow(cli, client, operation, allowed_s if timeout is None else timeout)
    if cli.output is not Output.TABLE:
        cli.show(operation, [list_sheet([operation])])
    check_outcome(operation)


@command(app, "pause")
def pause(cli: Invocation, operation_id: OperationId) -> None:
    """Let an operation stand still where it is, its deadline too, until it is resumed."""
    _steer(cli, operation_id, "pause")


@command(app, "resume")
def resume(cli: Invocation, operation_id: OperationId) -> None:
    """Let an operation go on that an operator paused."""
    _steer(cli, operation_id, "resume")


@command(app, "rollback")
def rollback(cli: Invocation, operation_id: OperationId, yes: Yes = False) -> None:
    """Undo an operation that has not ended by its own steps; follow it with watch."""
    _steer(cli, operation_id, "rollback", "Roll back", yes)


@command(app, "cancel")
def cancel(cli: Invocation, operation_id: OperationId, yes: Yes = False) -> None:
    """Cancel an operation that has not ended; a drain's traffic comes back at once, a failover's stays away."""
    _steer(cli, operation_id, "cancel", "Cancel", yes)


def _steer(cli: Invocation, operation_id: str, verb: str, asked: str = "", yes: bool = True) -> None:
    """Does `verb` to an operation; a person is asked first where `asked` says so."""
    with cli.client() as client:
        if asked:
            operation = client.get(f"{PATH}/{segment(operation_id)}", OperationView)
            if operation.state not in FINAL:
                cli.confirm(f"{asked} the {operation.kind} of {operation.subject}?", yes)
        operation = client.post(f"{PATH}/{segment(operation_id)}/{verb}", None, OperationView)
    if cli.output is Output.TABLE:
        cli.out.print(summary(operation), highlight=False, soft_wrap=True)
    else:
        cli.show(operation, [list_sheet([operation])])


def list_sheet(operations: list[OperationView], empty: str = NONE_YET) -> Sheet:
    columns = [Column("OPERATION"), Column("KIND"), Column("OF", loose=True), Column("STATE"),
               Column("ORDERED", right=True)]
    rows: list[list[Cell]] = [[operation.id, operation.kind, operation.subject, render.state(operation.state),
                               render.minute(operation.created_at)] for operation in operations]
    return Sheet(columns, rows, empty)


def detail_sheet(operation: OperationView) -> Sheet:
    forced = " (forced)" if operation.forced else ""
    rows: list[list[Cell]] = [
        [operation.id, render.state(operation.state)],
        ["what", f"{operation.kind} {operation.subject}{forced}"],
        ["why", operation.reason],
        ["by", operation.requested_by],
        ["ordered", render.moment(operation.created_at)],
        ["ended", render.moment(operation.finished_at)],
        ["deadline", render.moment(operation.deadline_at)],
    ]
    if operation.automatic:
        rows.append(["automatic", "no operator ordered it"])
    if operation.paused:
        rows.append(["paused", operation.paused])
    if operation.error:
        rows.append(["error", Text(operation.error, style=render.BAD)])
    return Sheet([Column("OPERATION"), Column("STATE", loose=True)], rows, "")


def steps_sheet(operation: OperationView) -> Sheet:
    columns = [Column(""), Column("STEP"), Column("TOOK", right=True), Column("DETAIL", loose=True)]
    rows: list[list[Cell]] = []
    for step in operation.steps:
        took_s = None
        if step.started_at and step.finished_at:
            took_s = (step.finished_at - step.started_at).total_seconds()
        mark = Text("›", style=render.BUSY) if step.state is StepState.RUNNING else Text(*MARKS[step.state])  # noqa: RUF001
        rows.append([mark, in_words(step.name), render.span(took_s), step.detail])
    return Sheet(columns, rows, "No steps.")
