"""`meridian drain`, `meridian failover` and `meridian restore`: traffic out of a datacenter, and back.

The plan comes first, from the control plane's own dry run. A person is asked; a script is not: where standard input is
no terminal the command goes on at once.
"""

from dataclasses import dataclass
from typing import Annotated

import typer
from rich.text import Text

from control_plane.cli import completing
from control_plane.cli.client import OperatorClient, failure
from control_plane.cli.documents import typed
from control_plane.cli.durations import duration
from control_plane.cli.errors import CommandFailed, Refused
from control_plane.cli.invocation import Invocation, Output, command, flag
from control_plane.cli.plans import plan_lines
from control_plane.cli.waiting import check_outcome, follow
from control_plane.contracts import ids
from control_plane.contracts.operations import (
    FINAL,
    FailoverMode,
    OperationAnswer,
    OperationKind,
    OperationPlan,
    OperationRequest,
    OperationState,
    OperationView,
)
from control_plane.contracts.problem import Problem

app = typer.Typer(add_completion=False)

PATH = "/operator/v1/operations"
GRACE_S = 300.0
"""How much longer than its deadline an operation is waited for: it ramps, moves streams and verifies besides."""

Datacenter = Annotated[str, typer.Argument(
    metavar="DATACENTER", autocompletion=completing.datacenters,
    help="Which datacenter, as meridian status names it.")]
Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; it is kept in the audit log.")]
Deadline = Annotated[float, duration(
    "--deadline", help="How long open requests may take to finish (default: 10m).")]
FailoverDeadline = Annotated[float, duration(
    "--deadline", help="How long open requests may take to finish in graceful mode (default: 30s).")]
Onto = Annotated[str | None, typer.Option(
    "--to", metavar="DATACENTERS", help="Which take its traffic, as A,B: only their capacity is counted.")]
Mode = Annotated[FailoverMode, typer.Option(
    "--mode", help="graceful lets open requests finish until the deadline, hard moves them at once.")]
OverrideReservations = Annotated[bool, flag(
    "--override-reservations", help="Go on although reserved capacity would be too little; audited.")]
Force = Annotated[bool, flag("--force", help="Overrule the safety rules; audited with the reason.")]
DryRun = Annotated[bool, flag("--dry-run", help="Show the plan and change nothing.")]
Wait = Annotated[bool, flag("--wait", "-w", help="Follow the steps until it is finished.")]
Timeout = Annotated[float | None, duration(
    "--timeout", help="How long --wait waits (default: five minutes past the deadline).")]
Yes = Annotated[bool, flag("--yes", "-y", help="Do not ask. Without a terminal nobody is asked anyway.")]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Whether the end is waited for, how long, and whether somebody is asked first."""

    wait: bool
    timeout_s: float | None
    yes: bool


@command(app, "drain")
def drain(cli: Invocation, datacenter: Datacenter, reason: Reason, deadline: Deadline = 600.0,
          force: Force = False, override_reservations: OverrideReservations = False, dry_run: DryRun = False,
          wait: Wait = False, timeout: Timeout = None, yes: Yes = False) -> None:
    """Move traffic out of a datacenter: new requests go elsewhere by degrees, open ones finish."""
    request = typed(OperationRequest, kind=OperationKind.DRAIN, datacenter=datacenter, reason=reason,
                    deadline_s=deadline, force=force, override_reservations=override_reservations, dry_run=dry_run)
    order(cli, request, Waiting(wait, timeout, yes))


@command(app, "failover")
def failover(cli: Invocation, datacenter: Datacenter, reason: Reason, to: Onto = None,
             mode: Mode = FailoverMode.GRACEFUL, deadline: FailoverDeadline = 30.0, force: Force = False,
             dry_run: DryRun = False, wait: Wait = False, timeout: Timeout = None, yes: Yes = False) -> None:
    """Leave a datacenter that failed: no new requests from now on, open ones go on elsewhere, until it is restored."""
    request = typed(
        OperationRequest, kind=OperationKind.FAILOVER, datacenter=datacenter, reason=reason, mode=mode,
        onto=[one.strip() for one in to.split(",") if one.strip()] if to else None, deadline_s=deadline, force=force,
        dry_run=dry_run)
    order(cli, request, Waiting(wait, timeout, yes), typed_name=datacenter if mode is FailoverMode.HARD else "")


@command(app, "restore")
def restore(cli: Invocation, datacenter: Datacenter, reason: Reason, deadline: Deadline = 600.0,
            force: Force = False, dry_run: DryRun = False, wait: Wait = False, timeout: Timeout = None,
            yes: Yes = False) -> None:
    """Bring a drained or failed datacenter back into service, by degrees."""
    request = typed(OperationRequest, kind=OperationKind.RESTORE, datacenter=datacenter, reason=reason,
                    deadline_s=deadline, force=force, dry_run=dry_run)
    order(cli, request, Waiting(wait, timeout, yes))


def order(cli: Invocation, request: OperationRequest, waiting: Waiting, question: str = "",
          typed_name: str = "") -> None:
    """Shows the plan, asks `question` where a person sits, or to type `typed_name`, and starts the operation."""
    key = ids.nonce()  # one for the whole invocation: however often it is sent, there is one operation
    with cli.client() as client:
        preview = client.post(PATH, request.model_copy(update={"dry_run": True}), OperationAnswer)
        _show_plan(cli, plan_lines(preview.plan, request.force), asked=not waiting.yes and cli.asks)
        if preview.plan.refusal and not request.force:
            raise _refused(preview.plan.refusal)
        if request.dry_run:
            if cli.is_json:
                cli.write(preview.model_dump_json(indent=2))
            return
        if typed_name:
            _confirm_by_name(cli, typed_name, waiting.yes)
        else:
            cli.confirm(question or f"{request.kind.capitalize()} {request.datacenter}?", waiting.yes)
        answer = client.post(PATH, request, OperationAnswer, idempotency_key=key)
        if answer.operation is None:
            raise _refused(answer.plan.refusal) if answer.plan.refusal else CommandFailed(
                "the control plane neither started the operation nor said why: look at meridian operations list")
        _conclude(cli, client, answer.plan, answer.operation, waiting)


def _confirm_by_name(cli: Invocation, name: str, yes: bool) -> None:
    """What cuts streams off is not confirmed by a key that is hit by habit.

    Raises:
        Abort: another name was typed.
    """
    if not yes and cli.asks and typer.prompt(f"Type {name} to fail it over hard", err=True) != name:
        raise typer.Abort


def _conclude(cli: Invocation, client: OperatorClient, plan: OperationPlan, operation: OperationView,
              waiting: Waiting) -> None:
    if operation.state is OperationState.REFUSED and plan.refusal:
        raise _refused(plan.refusal)
    was_over = operation.state in FINAL  # it was asked for before, and is done
    if waiting.wait and not was_over:
        cli.say("")
        timeout_s = waiting.timeout_s
        if timeout_s is None:
            timeout_s = max(0.0, (operation.deadline_at - operation.created_at).total_seconds()) + GRACE_S
        operation = follow(cli, client, operation, timeout_s)
    match cli.output:
        case Output.JSON:
            cli.write(OperationAnswer(plan=plan, operation=operation).model_dump_json(indent=2))
        case Output.PLAIN:
            cli.write(f"{operation.id}\t{operation.state}")
        case Output.TABLE if was_over:
            cli.say(f"Nothing to do: {operation.id} did it already, {operation.state}")
        case Output.TABLE if not waiting.wait:
            cli.say(f"Started {operation.id}\nFollow it with: meridian operations watch {operation.id}")
    if waiting.wait:
        check_outcome(operation)


def _refused(problem: Problem) -> CommandFailed:
    if problem.rule is None:
        return Refused(problem.message, code=problem.code, numbers=problem.numbers)
    return failure(problem, status=409)


def _show_plan(cli: Invocation, lines: list[Text], asked: bool) -> None:
    """People see the plan; programs get it with the answer, and on standard error when a person is asked."""
    if cli.output is Output.TABLE or asked:
        console = cli.out if cli.output is Output.TABLE else cli.err
        for line in lines:
            console.print(line, highlight=False, soft_wrap=True)
