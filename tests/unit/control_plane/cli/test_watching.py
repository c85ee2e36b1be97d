"""An answer that is shown all the time."""

import threading
import time
from collections.abc import Callable

import pytest
from rich.console import Console

from control_plane.cli import watching
from control_plane.cli.errors import Unreachable
from control_plane.cli.invocation import Invocation, Output
from control_plane.cli.render import Column, Sheet
from control_plane.contracts.wire import Wire

AWAY = Unreachable("the control plane does not answer")


class Counted(Wire):
    """How often was asked."""

    number: int


class Asked:
    """Answers by number, `faults` of them with an error; after `last` answers the person presses Ctrl-C."""

    def __init__(self, last: int, faults: tuple[int, ...] = ()) -> None:
        self.times, self._last, self._faults = 0, last, faults

    def __call__(self) -> watching.Shown:
        self.times += 1
        if self.times > self._last:
            raise KeyboardInterrupt
        if self.times in self._faults:
            raise AWAY
        return Counted(number=self.times), f"answer {self.times}", [
            Sheet([Column("NUMBER")], [[str(self.times)]], "nothing", notes=["a note"])]


@pytest.fixture
def on_a_terminal() -> tuple[Invocation, Callable[[], str]]:
    """A command line whose standard output is a terminal, and all that was written to it."""
    cli = Invocation()
    console = Console(force_terminal=True, width=60, height=20, record=True)
    cli._consoles[False] = console
    return cli, lambda: console.export_text(clear=False)


def test_in_a_pipe_each_answer_follows_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    watching.watch(Invocation(Output.PLAIN), Asked(3), 0.0)
    assert capsys.readouterr().out.split() == ["NUMBER", "1", "NUMBER", "2", "NUMBER", "3"]


def test_in_json_an_answer_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    watching.watch(Invocation(Output.JSON), Asked(2), 0.0)
    assert capsys.readouterr().out.splitlines() == ['{"number":1}', '{"number":2}']


def test_a_control_plane_that_is_away_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    watching.watch(Invocation(Output.JSON), Asked(3, faults=(2,)), 0.0)
    said = capsys.readouterr()
    assert said.out.splitlines() == ['{"number":1}', '{"number":3}']
    assert "does not answer; asking again" in said.err


def test_on_a_terminal_it_changes_in_place(on_a_terminal: tuple[Invocation, Callable[[], str]],
                                           capsys: pytest.CaptureFixture[str]) -> None:
    cli, _ = on_a_terminal
    watching.watch(cli, Asked(2), 0.0)
    written = capsys.readouterr().out
    assert written.startswith("\x1b[?1049h")  # the terminal's other screen, and back
    assert written.rstrip().endswith("\x1b[?1049l\x1b[?25h") or "\x1b[?1049l" in written
    assert "answer 2" in written
    assert "a note" in written


def test_on_a_terminal_the_last_answer_stays_and_is_marked_as_old(
        on_a_terminal: tuple[Invocation, Callable[[], str]], capsys: pytest.CaptureFixture[str]) -> None:
    cli, _ = on_a_terminal
    watching.watch(cli, Asked(2, faults=(2,)), 0.0)
    last = capsys.readouterr().out.rpartition("does not answer")[2]
    assert "answer 1" in last


def test_it_looks_as_often_as_was_asked() -> None:
    asked = Asked(10_000)
    ended = threading.Event()

    def pressed() -> watching.Shown:
        if ended.is_set():
            raise KeyboardInterrupt
        return asked()

    runner = threading.Thread(target=watching.watch, args=(Invocation(Output.JSON), pressed, 0.2))
    runner.start()
    time.sleep(0.5)
    ended.set()
    runner.join(5)
    assert 2 <= asked.times <= 4
