"""Following an operation to its end: a live list of its steps on a terminal, a line for each change elsewhere."""

from collections.abc import Callable
from time import sleep

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from control_plane.cli import render
from control_plane.cli.client import OperatorClient, segment
from control_plane.cli.errors import StillRunning, Unfinished, Unreachable
from control_plane.cli.invocation import Invocation, Output
from control_plane.cli.steps import in_words
from control_plane.contracts.clock import Clock, SystemClock
from control_plane.contracts.ids import jitter
from control_plane.contracts.operations import FINAL, OperationState, OperationView, StepState, StepView

POLL_S = 0.5
MARKS = {
    StepState.PENDING: ("·", render.QUIET),
    StepState.DONE: ("✓", render.GOOD),
    StepState.FAILED: ("✗", render.BAD),
    StepState.SKIPPED: ("-", render.QUIET),
}

Watcher = Callable[[OperationView], None]


def follow(cli: Invocation, client: OperatorClient, operation: OperationView, timeout_s: float,
           clock: Clock | None = None) -> OperationView:
    """Shows the operation's steps until it has ended, and returns it as it ended.

    Raises:
        StillRunning: it had not ended after `timeout_s`.
    """
    clock = clock or SystemClock()
    try:
        if cli.output is Output.TABLE and cli.out.is_terminal:
            spinner = Spinner("dots")
            with Live(console=cli.out, refresh_per_second=8) as live:
                return _poll(client, operation, timeout_s, clock,
                             lambda seen: live.update(steps_view(seen, spinner, clock.time_s())))
        report = _Reporter(cli, clock) if cli.output is Output.TABLE else _silent
        return _poll(client, operation, timeout_s, clock, report)
    except KeyboardInterrupt:
        cli.err.print(f"\n{operation.id} goes on; {_how_to_follow(operation)}", highlight=False, soft_wrap=True)
        raise


def check_outcome(operation: OperationView) -> None:
    """Ends the command unless the operation succeeded.

    Raises:
        Unfinished: it failed, was refused, cancelled or rolled back.
    """
    if operation.state is not OperationState.SUCCEEDED:
        why = f": {operation.error}" if operation.error else ""
        raise Unfinished(f"{operation.kind} of {operation.subject} ended {operation.state}{why}",
                         code=f"operation_{operation.state}")


def steps_view(operation: OperationView, spinner: Spinner, now_s: float) -> Group:
    """The steps as a list with marks; the running one turns."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for step in operation.steps:
        mark = spinner if step.state is StepState.RUNNING else Text(*MARKS[step.state])
        table.add_row(mark, Text(in_words(step.name)), Text(_took(step, now_s), style=render.QUIET),
                      Text(step.detail, style=render.QUIET))
    return Group(table, summary(operation))


def summary(operation: OperationView) -> Text:
    """The operation in one line."""
    took_s = (operation.finished_at - operation.created_at).total_seconds() if operation.finished_at else None
    after = f" in {render.span(took_s)}" if took_s is not None else ""
    line = Text.assemble(f"{operation.kind} of {operation.subject} ", render.state(operation.state), after)
    if operation.paused:
        line.append(f": {operation.paused}")
    return line.append(f"  {operation.id}", style=render.QUIET)


def _poll(client: OperatorClient, operation: OperationView, timeout_s: float, clock: Clock,
          seen: Watcher) -> OperationView:
    ends_at_s = clock.monotonic_s() + timeout_s
    seen(operation)
    while operation.state not in FINAL:
        if clock.monotonic_s() >= ends_at_s:
            raise StillRunning(f"{operation.id} is still {operation.state} after {render.span(timeout_s)}; "
                               + _how_to_follow(operation))
        sleep(jitter(POLL_S))
        try:
            operation = client.get(f"/operator/v1/operations/{segment(operation.id)}", OperationView)
        except Unreachable:
            continue  # it runs on without us; the time to wait bounds how long nobody answers
        seen(operation)
    return operation


def _how_to_follow(operation: OperationView) -> str:
    return f"follow it with: meridian operations watch {operation.id}"


def _took(step: StepView, now_s: float) -> str:
    if step.started_at is None:
        return ""
    until_s = step.finished_at.timestamp() if step.finished_at else now_s
    return render.span(max(0.0, until_s - step.started_at.timestamp()))


def _silent(_: OperationView) -> None:
    """Programs read the answer, not the way to it."""


class _Reporter:
    """Prints a line whenever a step's state or what it waits for changes, and one at the end."""

    def __init__(self, cli: Invocation, clock: Clock) -> None:
        self._cli, self._clock, self._began_s = cli, clock, clock.monotonic_s()
        self._last: dict[int, tuple[StepState, str]] = {}
        self._paused: str | None = None
        self._ended = False

    def __call__(self, operation: OperationView) -> None:
        for step in operation.steps:
            now = (step.state, step.detail)
            if step.state is StepState.PENDING or self._last.get(step.seq) == now:
                continue
            self._last[step.seq] = now
            passed = render.span(self._clock.monotonic_s() - self._began_s)
            detail = f": {step.detail}" if step.detail else ""
            self._cli.say(f"{passed:>6}  {in_words(step.name)}, {step.state}{detail}")
        if operation.paused != self._paused:
            self._paused = operation.paused
            passed = render.span(self._clock.monotonic_s() - self._began_s)
            self._cli.say(f"{passed:>6}  {f'paused: {self._paused}' if self._paused else 'goes on'}")
        if operation.state in FINAL and not self._ended:
            self._ended = True
            self._cli.out.print(summary(operation), highlight=False, soft_wrap=True)
