"""How people are told to call the command line, and how a console that nobody reads behaves."""

import contextlib
import os
from pathlib import Path

import pytest
from rich.console import Console

from infra.local.progress import LastingConsole
from infra.local.stack import together
from infra.local.up import command_line


def test_the_state_that_dev_exports_needs_no_option(tmp_path: Path) -> None:
    assert command_line(tmp_path, tmp_path) == "./dev run"


def test_another_state_is_named(tmp_path: Path) -> None:
    assert command_line(tmp_path / "b", tmp_path / "a") == f"./dev run --state {tmp_path / 'b'}"


def test_without_dev_it_is_the_bare_program(tmp_path: Path) -> None:
    assert command_line(tmp_path, None) == f"meridian --state {tmp_path}"


def test_a_path_below_the_working_directory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_line(tmp_path / "b", None) == "meridian --state b"


@pytest.mark.parametrize(("kind", "ends"), [(Console, True), (LastingConsole, False)])
def test_only_a_lasting_console_survives_its_reader(kind: type[Console], ends: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    out = os.fdopen(writer, "w")
    console = kind(file=out)
    try:
        console.print("nobody reads this")
        ended = False
    except (SystemExit, BrokenPipeError):
        ended = True
    with contextlib.suppress(BrokenPipeError):
        out.close()
    assert ended is ends


async def test_work_that_fails_together_fails_as_one_plain_error() -> None:
    done: list[str] = []

    async def works() -> None:
        done.append("worked")

    async def fails() -> None:
        raise ValueError("no Valkey")

    with pytest.raises(ValueError, match="no Valkey"):
        await together(works(), fails())
    assert done == ["worked"]
