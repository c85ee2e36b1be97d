"""How things look: quiet tables for people, tab-separated lines for pipes, and words for numbers and times.

A dash is what nobody observed; it is never a zero.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from control_plane.contracts.pricing import usd_text

UNOBSERVED = "–"  # noqa: RUF001
ELLIPSIS = "…"
GOOD, BUSY, BAD, QUIET = "green", "yellow", "red", "bright_black"

STYLES = {
    "active": GOOD, "ready": GOOD, "live": GOOD, "succeeded": GOOD, "done": GOOD, "completed": GOOD,
    "draining": BUSY, "drained": BUSY, "recovering": BUSY, "warming": BUSY, "pending": BUSY, "provisioning": BUSY,
    "degraded": BUSY, "retiring": BUSY, "running": BUSY, "planned": BUSY, "behind": BUSY, "client_gone": BUSY,
    "paused": BUSY, "rolling_back": BUSY, "rolled_back": BUSY,
    "failed": BAD, "refused": BAD, "cancelled": BAD, "away": BAD, "gone": BAD, "refuses": BAD, "revoked": BAD,
    "upstream_lost": BAD, "edge_lost": BAD,
}

Cell = str | Text


@dataclass(frozen=True, slots=True)
class Column:
    """A heading. Numbers stand to the right. What is `loose` gives way first when the line is too long."""

    title: str
    right: bool = False
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table, and what to say when it is empty. `notes` stand below it."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    empty: str
    notes: Sequence[Cell] = field(default_factory=list)

    def table(self) -> Table:
        """For people."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=QUIET)
        for column in self.columns:
            table.add_column(column.title, justify="right" if column.right else "left",
                             no_wrap=not column.loose, overflow="fold" if column.loose else "ellipsis")
        for row in self.rows:
            table.add_row(*map(_shown, row))
        return table

    def lines(self) -> Iterable[str]:
        """For pipes: a heading, then one line a row."""
        yield "\t".join(column.title for column in self.columns)
        for row in self.rows:
            yield "\t".join(_one_line(cell) for cell in row)


def print_sheets(console: Console, sheets: Sequence[Sheet]) -> None:
    """Prints tables with air between them."""
    for index, sheet in enumerate(sheets):
        if index:
            console.print()
        if not sheet.rows:
            console.print(Text(sheet.empty, style=QUIET))
            continue
        console.print(sheet.table())
        for note in sheet.notes:
            console.print(Padding(note if isinstance(note, Text) else Text(note), (0, 0, 0, 2)))


def state(word: str, shown: str = "") -> Text:
    """A state in its colour; the word alone says it all without colour."""
    return Text(shown or word, style=STYLES.get(word, ""))


def count(value: int | None) -> str:
    """A count with its thousands apart."""
    return UNOBSERVED if value is None else f"{value:,}"


def share(part: int | None, whole: int | None) -> str:
    """`2/2`: how many of how many."""
    return f"{count(part)}/{count(whole)}"


def money(amount: Decimal) -> str:
    """Exact dollars, as billed."""
    return f"{'-' if amount < 0 else ''}${usd_text(abs(amount))}"


def span(seconds: float | None) -> str:
    """A length of time in its two largest units."""
    if seconds is None:
        return UNOBSERVED
    if seconds < 10:
        return f"{seconds:.1f}s"
    total = round(seconds)
    for unit_s, unit, rest_s, rest in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if total >= unit_s:
            smaller = total % unit_s // rest_s
            return f"{total // unit_s}{unit}" + (f" {smaller}{rest}" if smaller else "")
    return f"{total}s"


def moment(at: datetime | None) -> str:
    """A time in the reader's own zone, to the second."""
    return UNOBSERVED if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def minute(at: datetime | None) -> str:
    """The same without the year and the seconds, where a line has much to say."""
    return UNOBSERVED if at is None else at.astimezone().strftime("%m-%d %H:%M")


def request_id(identifier: str) -> str:
    """The id of a usage record as the edge's clients see it, in headers and in answers."""
    return f"req_{identifier.replace('-', '')}"


def short_id(identifier: str) -> str:
    """An identifier made short where it is only looked at: what it is, and its end."""
    prefix, cut, tail = identifier.partition("_")
    return f"{prefix}_{ELLIPSIS}{tail[-6:]}" if cut and len(tail) > 16 else identifier


def printable(text: str) -> str:
    """Text without the control characters by which somebody's words could steer a terminal."""
    return "".join(character for character in text if character.isprintable() or character in "\n\t")


def _shown(cell: Cell) -> Text:
    """A cell as nothing but text: what looks like markup is what somebody wrote."""
    return Text(printable(cell.plain), style=cell.style) if isinstance(cell, Text) else Text(printable(cell))


def _one_line(cell: Cell) -> str:
    return " ".join(printable(cell.plain if isinstance(cell, Text) else cell).split())
