"""The display of a start, live and plain."""

import asyncio
import io

import pytest
from rich.console import Console

from infra.local.progress import Progress


async def nothing() -> int:
    await asyncio.sleep(0)
    return 7


async def broken() -> None:
    raise ValueError("no")


async def test_without_a_terminal_each_step_is_one_plain_line() -> None:
    out = io.StringIO()
    with Progress(Console(file=out)) as progress:
        assert await progress.step("Postgres", nothing()) == 7
    assert out.getvalue() == "Postgres: ready after 0.0 s\n"


async def test_a_failed_step_is_shown_and_its_error_goes_on() -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out))
    with pytest.raises(ValueError, match="no"):
        await progress.step("Valkey", broken())
    rendered = io.StringIO()
    Console(file=rendered, width=60).print(progress.table())
    assert "Valkey" in rendered.getvalue()
    assert "not started" in rendered.getvalue()
    assert out.getvalue() == ""


async def test_a_terminal_keeps_the_final_table() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, force_terminal=True, width=60, _environ={"TERM": "xterm"})) as progress:
        await progress.step("edge 0", nothing())
    assert "edge 0" in out.getvalue()
    assert "ready" in out.getvalue()
