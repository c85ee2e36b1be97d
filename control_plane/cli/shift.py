"""`meridian shift`: a part of what one datacenter gets of a model goes to another, step by step."""

from typing import Annotated

import typer

from control_plane.cli import completing
from control_plane.cli.documents import typed
from control_plane.cli.durations import duration
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.moves import DryRun, Force, Reason, Timeout, Wait, Waiting, Yes, order
from control_plane.contracts.operations import OperationKind, OperationRequest, ShiftOrder

app = typer.Typer(add_completion=False)

SLACK_S = 600.0  # for edges to take each step, beyond the time that the steps are held

Model = Annotated[str, typer.Argument(
    metavar="MODEL", autocompletion=completing.models, help="Whose traffic.")]
Source = Annotated[str, typer.Option("--from", metavar="DATACENTER", help="Which datacenter gets less.")]
Target = Annotated[str, typer.Option("--to", metavar="DATACENTER", help="Which one gets that instead.")]
Percent = Annotated[int, typer.Option(
    "--percent", min=1, max=100, metavar="NUMBER", help="How much of what the first one gets of the model.")]
Step = Annotated[int, typer.Option("--step", min=1, max=100, metavar="NUMBER", help="How much of it at a time.")]
Interval = Annotated[float, duration(
    "--interval", help="How long each step is held before the next (default: 60s).")]
AbortIf = Annotated[str | None, typer.Option(
    "--abort-if", metavar="CONDITION", show_default=False,
    help="Move it back when this comes true of the second one: 'ttft_p90>2s or error_rate>1%'. There are "
         "ttft_p50/p90/p99, itl_p50/p90/p99, error_rate, queue and headroom.")]


@command(app, "shift")
def shift(cli: Invocation, model: Model, source: Source, target: Target, percent: Percent, reason: Reason,
          step: Step = 5, interval: Interval = 60.0, abort_if: AbortIf = None, force: Force = False,
          dry_run: DryRun = False, wait: Wait = False, timeout: Timeout = None, yes: Yes = False) -> None:
    """Move a part of a model's requests from one datacenter to another, step by step. Open requests stay where they
    are. It goes back by itself when the second one fails more than 1% of its requests, or when --abort-if is true."""
    wanted = typed(ShiftOrder, model=model, source=source, target=target, percent=percent, step_percent=step,
                   interval_s=interval, abort_if=abort_if)
    steps = -(-percent // step)
    request = typed(OperationRequest, kind=OperationKind.SHIFT, shift=wanted, reason=reason, force=force,
                    deadline_s=min(steps * (interval + 60.0) + SLACK_S, 86_400.0), dry_run=dry_run)
    order(cli, request, Waiting(wait, timeout, yes),
          f"Shift {percent}% of {model} from {source} to {target}? Cancelled half-way, it goes back to where it was.")
