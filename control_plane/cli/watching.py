"""Showing an answer again and again: in place on a terminal, one after the other elsewhere."""

from collections.abc import Callable, Sequence
from time import sleep

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from control_plane.cli import render
from control_plane.cli.errors import Unreachable
from control_plane.cli.invocation import Invocation, Output
from control_plane.cli.render import Sheet
from control_plane.contracts.wire import Wire

Shown = tuple[Wire, str, Sequence[Sheet]]


def watch(cli: Invocation, ask: Callable[[], Shown], every_s: float) -> None:
    """Asks and shows until Ctrl-C, which is no failure. While nobody answers the last answer stays, marked as old."""
    try:
        if cli.output is Output.TABLE and cli.out.is_terminal:
            with Live(console=cli.out, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
                _in_place(live, cli.out, ask, every_s)
        else:
            _one_by_one(cli, ask, every_s)
    except KeyboardInterrupt:
        return


def _in_place(live: Live, console: Console, ask: Callable[[], Shown], every_s: float) -> None:
    picture, trouble = Group(), ""
    while True:
        try:
            _, heading, sheets = ask()
            picture, trouble = _picture(heading, sheets), ""
        except Unreachable as error:
            trouble = str(error)
        warning = [Text(f"{trouble}. What is shown is as it was; asking again.", style=render.BAD)] if trouble else []
        live.update(Group(*warning, picture), refresh=True)
        sleep(every_s)


def _picture(heading: str, sheets: Sequence[Sheet]) -> Group:
    parts: list[object] = [Text(heading + "   Ctrl-C ends", style=render.QUIET)]
    for sheet in sheets:
        parts += [Text(""), sheet.table() if sheet.rows else Text(sheet.empty, style=render.QUIET)]
        parts += [Text("  ").append_text(note if isinstance(note, Text) else Text(note)) for note in sheet.notes]
    return Group(*parts)  # type: ignore[arg-type]


def _one_by_one(cli: Invocation, ask: Callable[[], Shown], every_s: float) -> None:
    while True:
        try:
            data, heading, sheets = ask()
        except Unreachable as error:
            cli.err.print(f"{error}; asking again", highlight=False, markup=False, soft_wrap=True)
        else:
            if cli.output is Output.JSON:  # one line an answer, so that a program can read along
                cli.write(data.model_dump_json())
            else:
                cli.show(data, sheets, heading)
                cli.write("")
        sleep(every_s)
