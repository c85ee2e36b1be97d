"""What a person at the terminal sees of a run: one live line, then a table of properties, and how to run it again."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.chaos.checker import Property, failures

GOOD, BAD = "green", "bold red"
WIDTH = 120


class Report:
    """Writes to the terminal; where there is none, a line every ten seconds instead of one that lives."""

    QUIET_EVERY_S = 10.0

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
        self._live = self.console.is_terminal
        self._told_at_s = time.monotonic()
        self._width = 0

    def say(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        self.console.print(text, markup=False, soft_wrap=True)

    def now(self, text: str) -> None:
        """How it stands at the moment."""
        if self._live:
            line = text[:self.console.width - 1]
            sys.stdout.write("\r" + line.ljust(self._width))
            sys.stdout.flush()
            self._width = len(line)
        elif time.monotonic() - self._told_at_s > self.QUIET_EVERY_S:
            self._told_at_s = time.monotonic()
            self.console.print(text, markup=False, soft_wrap=True)

    def table(self, title: str, properties: Sequence[Property]) -> None:
        """Every property with its figure and its bound, and examples of what broke one."""
        self._clear()
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        table.add_column("")
        table.add_column("property")
        table.add_column("figure", justify="right", overflow="fold")
        table.add_column("bound", justify="right")
        for one in properties:
            mark = "" if not one.bound else f"[{GOOD}]✓[/]" if one.holds else f"[{BAD}]✗[/]"
            table.add_row(mark, one.name, one.figure, one.bound, style=None if one.holds else BAD)
        self.console.print(table)
        for one in properties:
            for example in one.examples:
                self.console.print(f"  {'✗' if not one.holds else '·'} {one.name}: {example}", markup=False,
                                   soft_wrap=True)

    def verdict(self, properties: Sequence[Property], command: str) -> None:
        """All of it in one line, and the command that repeats it."""
        broken = failures(properties)
        bounded = sum(bool(one.bound) for one in properties)
        words = f"{len(broken)} of {bounded} properties broken" if broken else f"all {bounded} properties hold"
        self.console.print(f"\n{words}. Again: {command}", style=BAD if broken else GOOD, markup=False, soft_wrap=True)

    def _clear(self) -> None:
        if self._width:
            sys.stdout.write("\r" + " " * self._width + "\r")
            self._width = 0
