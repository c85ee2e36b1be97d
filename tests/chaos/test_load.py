"""The load keeps its rate, tries again what may be tried again, and writes down every try."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.chaos import history
from tests.chaos.history import History, Journal, Verdict
from tests.chaos.load import MIX, Load, Plan
from tests.chaos.ways import WAYS

BUSY = (b"HTTP/1.1 503 X\r\nx-should-retry: %b\r\nretry-after-ms: 20\r\nx-request-id: req_00-11\r\n"
        b"content-length: 2\r\n\r\n{}")


@asynccontextmanager
async def edge(answer: Callable[[], bytes]) -> AsyncIterator[str]:
    """Answers everything with what `answer` says, and closes."""
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(answer())
        await writer.drain()
        writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=512)
    async with running:
        yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}"


async def run(directory: Path, *edges: str, stop_after_s: float = 0.0, **changes: Any) -> History:
    """A load's history."""
    path = directory / "load"
    plan = Plan(**{"edges": list(edges), "keys": [("team", "key")], "model": "m", "history": str(path), "seed": 1,
                   "per_s": 200.0, "at_most": 20} | changes)
    with Journal(path) as journal:
        load = Load(plan, journal)
        if stop_after_s:
            asyncio.get_running_loop().call_later(stop_after_s, load.stopped.set)
        await load.run()
    return history.read([path])


async def test_every_request_is_written_down_with_its_last_try(tmp_path: Path) -> None:
    async with edge(lambda: BUSY % b"false") as url:
        seen = await run(tmp_path, url)
    assert sorted(one.number for one in seen.final()) == list(range(1, 21))
    assert {(one.verdict, one.retry, one.attempt, one.request_id) for one in seen.tries} == {
        (Verdict.REFUSED, False, 1, "0011")}


async def test_what_may_be_tried_again_is_tried_at_the_other_edge(tmp_path: Path) -> None:
    async with edge(lambda: BUSY % b"true") as one, edge(lambda: BUSY % b"false") as other:
        seen = await run(tmp_path, one, other, at_most=2)
    assert [(x.edge, x.attempt, x.last) for x in sorted(seen.tries, key=lambda x: (x.number, x.attempt))] == [
        (1, 1, True), (0, 1, False), (1, 2, True)]


async def test_tries_come_to_an_end(tmp_path: Path) -> None:
    async with edge(lambda: BUSY % b"true") as url:
        seen = await run(tmp_path, url, at_most=1, tries=3)
    assert [(one.attempt, one.last) for one in seen.tries] == [(1, False), (2, False), (3, True)]


async def test_the_rate_is_kept_whether_or_not_anybody_answers(tmp_path: Path) -> None:
    async with edge(lambda: b"") as url:
        seen = await run(tmp_path, url, at_most=100, tries=1)
    assert 150 < seen.rate_per_s() < 250


async def test_more_than_it_may_have_open_is_not_begun_and_noted(tmp_path: Path) -> None:
    async with edge(lambda: BUSY % b"false") as url:
        seen = await run(tmp_path, url, open_max=1, per_s=5_000.0)
    assert len(seen.held) + len(seen.final()) == 20
    assert seen.held


async def test_a_load_that_is_stopped_begins_nothing_more(tmp_path: Path) -> None:
    async with edge(lambda: BUSY % b"false") as url:
        seen = await run(tmp_path, url, stop_after_s=0.2, at_most=0)
    assert 10 < len(seen.final()) < 80


def test_the_mix_has_every_way_to_ask() -> None:
    assert {way for way, *_ in MIX} == set(WAYS)
    assert sum(share for _, share, *_ in MIX) == 100
