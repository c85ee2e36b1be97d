"""Shows what is starting and how long each step took: a live table on a terminal, plain lines elsewhere."""

import os
from collections.abc import Awaitable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from control_plane.contracts.clock import SystemClock

Result = TypeVar("Result")
REFRESH_HZ = 8.0
CLOCK = SystemClock()


class LastingConsole(Console):
    """A console that falls silent when nobody reads it any more, instead of ending the process."""

    def on_broken_pipe(self) -> None:
        """What is still buffered would fail again when the file is closed, so it goes nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


@dataclass
class Step:
    """A line of the display. Times are monotonic seconds; `ended_s` is None while it goes on."""

    name: str
    began_s: float
    ended_s: float | None = None
    succeeded: bool = False


class Progress:
    """The display of one start. `console` decides whether it is live."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._steps: list[Step] = []
        self._spinner = Spinner("dots")
        live = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(get_renderable=self.table, console=console, refresh_per_second=REFRESH_HZ) if live else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    async def step(self, name: str, work: Awaitable[Result]) -> Result:
        """Shows a line from now until the work is done, and hands its result on."""
        step = Step(name, CLOCK.monotonic_s())
        self._steps.append(step)
        try:
            result = await work
            step.succeeded = True
        finally:
            step.ended_s = CLOCK.monotonic_s()
        if self._live is None:
            self._console.print(f"{name}: ready after {step.ended_s - step.began_s:.1f} s", soft_wrap=True)
        return result

    def note(self, line: str) -> None:
        """A line that stays above the display."""
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def table(self) -> Table:
        """The steps so far."""
        table = Table.grid(padding=(0, 2))
        now_s = CLOCK.monotonic_s()
        for step in self._steps:
            mark: RenderableType = self._spinner
            state = "starting"
            if step.ended_s is not None:
                mark, state = (Text("✓", "green"), "ready") if step.succeeded else (Text("✗", "red"), "not started")
            table.add_row(mark, step.name, state, f"{(step.ended_s or now_s) - step.began_s:5.1f} s")
        return table
