"""`meridian drain` and `meridian restore`: traffic out of a datacenter, and back.

The plan comes first, from the control plane's own dry run. A person is asked; a script is not: where standard input is
no terminal the command goes on at once.
"""

from dataclasses import dataclass
from typing import Annotated

import typer
from rich.text import Text

from control_plane.cli import completing, render
from control_plane.cli.client import OperatorClient, failure
from control_plane.cli.documents import typed
from control_plane.cli.durations import duration
from control_plane.cli.errors import CommandFailed, Refused
from control_plane.cli.invocation import Invocation, Output, command, flag
from control_plane.cli.steps import in_words
from control_plane.cli.waiting import check_outcome, follow
from control_plane.contracts import ids
from control_plane.contracts.operations import (
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
GRACE_S = 60.0  # how much longer than its deadline an operation is waited for

Datacenter = Annotated[str, typer.Argument(
    metavar="DATACENTER", autocompletion=completing.datacenters,
    help="Which datacenter, as meridian status names it.")]
Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; it is kept in the audit log.")]
Deadline = Annotated[float, duration(
    "--deadline", help="How long open requests may take to finish (default: 10m).")]
Force = Annotated[bool, flag("--force", help="Overrule the safety rules; audited with the reason.")]
DryRun = Annotated[bool, flag("--dry-run", help="Show the plan and change nothing.")]
Wait = Annotated[bool, flag("--wait", "-w", help="Follow the steps until it is finished.")]
Timeout = Annotated[float | None, duration(
    "--timeout", help="How long --wait waits (default: a minute past the deadline).")]
Yes = Annotated[bool, flag("--yes", "-y", help="Do not ask. Without a terminal nobody is asked anyway.")]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Whether the end is waited for, how long, and whether somebody is asked first."""

    wait: bool
    timeout_s: float | None
    yes: bool


@command(app, "drain")
def drain(cli: Invocation, datacenter: Datacenter, reason: Reason, deadline: Deadline = 600.0,
          force: Force = False, dry_run: DryRun = False, wait: Wait = False, timeout: Timeout = None,
          yes: Yes = False) -> None:
    """Move traffic out of a datacenter: new requests go elsewhere at once, open ones finish."""
    request = typed(OperationRequest, kind=OperationKind.DRAIN, datacenter=datacenter, reason=reason,
                    deadline_s=deadline, force=force, dry_run=dry_run)
    order(cli, request, Waiting(wait, timeout, yes))


@command(app, "restore")
def restore(cli: Invocation, datacenter: Datacenter, reason: Reason, deadline: Deadline = 600.0,
            force: Force = False, dry_run: DryRun = False, wait: Wait = False, timeout: Timeout = None,
            yes: Yes = False) -> None:
    """Bring a drained datacenter back into service."""
    request = typed(OperationRequest, kind=OperationKind.RESTORE, datacenter=datacenter, reason=reason,
                    deadline_s=deadline, force=force, dry_run=dry_run)
    order(cli, request, Waiting(wait, timeout, yes))


def order(cli: Invocation, request: OperationRequest, waiting: Waiting, question: str = "") -> None:
    """Shows the plan, asks `question` where a person sits, and starts the operation."""
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
        cli.confirm(question or f"{request.kind.capitalize()} {request.datacenter}?", waiting.yes)
        answer = client.post(PATH, request, OperationAnswer, idempotency_key=key)
        if answer.operation is None:
            raise _refused(answer.plan.refusal) if answer.plan.refusal else CommandFailed(
                "the control plane neither started the operation nor said why: look at meridian operations list")
        _conclude(cli, client, answer.plan, answer.operation, waiting)


def _conclude(cli: Invocation, client: OperatorClient, plan: OperationPlan, operation: OperationView,
              waiting: Waiting) -> None:
    if operation.state is OperationState.REFUSED and plan.refusal:
        raise _refused(plan.refusal)
    if waiting.wait:
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


def plan_lines(plan: OperationPlan, forced: bool) -> list[Text]:
    """A plan in words: what is touched, what is done, and what then remains for each model."""
    open_requests = "not reported" if plan.open_requests is None else render.count(plan.open_requests)
    lines = [
        Text.assemble(("Plan: ", "bold"), (f"{plan.kind} {plan.subject}", "bold"),
                      (f"  (now {plan.traffic_state})", render.QUIET)),
        Text(f"  open requests  {open_requests}"),
    ]
    for model in plan.models:
        remaining = plan.remaining_datacenters.get(model, [])
        style = render.GOOD if remaining else render.BAD
        places = Text(", ".join(remaining) or "nothing", style=style)
        lines.append(Text.assemble(f"  {model}  then served by ", places))
    lines += [Text(f"  {place}  {change.before_percent:g}% of its requests, then {change.after_percent:g}%")
              for place, change in plan.traffic.items()]
    if forced:
        lines.append(Text("  forced: the safety rules are overruled", style=render.BAD))
    lines += [Text(f"  {number}. {in_words(step)}") for number, step in enumerate(plan.steps, 1)]
    if not plan.steps and not plan.refusal:
        lines.append(Text("  nothing to do", style=render.QUIET))
    return lines
