"""The queue before the process that judges: what is judged, what is not, and that nobody waits for either."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec import Raw, json

from edge_api.metrics import Metrics
from edge_api.tool_calls import judge as judging
from edge_api.tool_calls.judge import COMMAND, CallJudge
from edge_api.tool_calls.verdict import Called
from tests.unit.edge_api.builders import MODEL

WEST = "us-east-1"
GOOD, BAD = Called("f", '{"n": 1}'), Called("f", '{"n": "x"}')
ENDLESS = "^(a+)+$"


def tools(**of_n: Any) -> list[Raw]:
    schema = {"type": "object", "properties": {"n": of_n or {"type": "integer"}}}
    return [Raw(json.encode({"type": "function", "function": {"name": "f", "parameters": schema}}))]


class Bench:
    """A judge, and what came of its answers."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self.metrics = Metrics()
        self.heard: list[tuple[str, str, bool]] = []
        self.judge = CallJudge(self.metrics, lambda *judged: self.heard.append(judged), command)

    def take(self, *calls: Called, model: str = MODEL, offered: list[Raw] | None = None) -> None:
        self.judge.take(model, WEST, tools() if offered is None else offered, calls)

    def count(self, verdict: str, model: str = MODEL) -> int:
        labels = {"model": model, "datacenter": WEST, "verdict": verdict}
        return int(self.metrics.registry.get_sample_value("meridian_edge_called_answers_total", labels) or 0)

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.count("fine"), self.count("wrong"), self.count("unjudged")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (what is waited for is another process's doing)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.create_task(bench.judge.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_answers_are_counted_once_each_by_verdict() -> None:
    bench = Bench()
    async with running(bench):
        bench.take(GOOD)
        bench.take(GOOD, BAD, BAD)
        bench.take(GOOD, GOOD)
        await until(lambda: len(bench.heard) == 3)
    assert bench.counts == (2, 1, 0)
    assert bench.heard == [(MODEL, WEST, False), (MODEL, WEST, True), (MODEL, WEST, False)]


async def test_no_process_runs_before_there_is_a_case() -> None:
    bench = Bench()
    async with running(bench):
        await asyncio.sleep(0.05)
        assert bench.judge._child is None


async def test_the_process_ends_with_the_edge() -> None:
    bench = Bench()
    async with running(bench):
        bench.take(GOOD)
        await until(lambda: bench.heard)
        child = bench.judge._child
        assert child is not None
    assert child.returncode is not None


async def test_a_schema_that_takes_for_ever_holds_nobody_up_and_is_not_tried_again() -> None:
    bench = Bench()
    evil = tools(pattern=ENDLESS)
    slow = Called("f", json.encode({"n": "a" * 64 + "!"}).decode())
    async with running(bench):
        bench.take(slow, offered=evil)
        bench.take(GOOD)
        longest_s, last_s = 0.0, time.monotonic()
        while bench.counts != (1, 0, 1):
            await asyncio.sleep(0.001)
            longest_s, last_s = max(longest_s, time.monotonic() - last_s), time.monotonic()
        assert longest_s < 0.4, "the edge itself stood still"
        child = bench.judge._child
        bench.take(slow, offered=evil)
        bench.take(BAD)
        await until(lambda: len(bench.heard) == 2)
        assert bench.judge._child is child
    assert bench.counts == (1, 1, 2)


async def test_a_process_that_is_killed_is_replaced() -> None:
    bench = Bench()
    async with running(bench):
        bench.take(GOOD)
        await until(lambda: bench.heard)
        assert bench.judge._child is not None
        bench.judge._child.kill()
        bench.take(GOOD, offered=tools(type="number"))
        await until(lambda: bench.count("unjudged"))
        bench.take(GOOD)
        await until(lambda: len(bench.heard) == 2)
    assert bench.counts == (2, 0, 1)


@pytest.mark.parametrize("command", [("/nonexistent/python",), (sys.executable, "-c", "print('?')")])
async def test_without_a_process_that_works_answers_stay_unjudged(command: Sequence[str]) -> None:
    bench = Bench(command)
    async with running(bench):
        bench.take(GOOD)
        bench.take(BAD)
        await until(lambda: bench.count("unjudged") == 2)
    assert bench.counts == (0, 0, 2)


async def test_a_process_that_says_nothing_is_waited_for_until_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "DEADLINE_S", 0.2)
    bench = Bench((sys.executable, "-c", "import time; time.sleep(60)"))
    async with running(bench):
        bench.take(GOOD)
        await until(lambda: bench.count("unjudged"))
        monkeypatch.undo()
        bench.judge._command = COMMAND
        bench.take(GOOD)
        await until(lambda: bench.heard)
    assert bench.counts == (1, 0, 1), "a slow machine says nothing of the tools"


async def test_what_must_not_be_tried_again_is_remembered_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "MAX_DEADLY", 2)
    bench = Bench((sys.executable, "-c", ""))
    async with running(bench):
        for number in range(5):
            bench.take(GOOD, offered=tools(minimum=number))
        await until(lambda: bench.count("unjudged") == 5)
    assert len(bench.judge._deadly) <= 2


async def test_a_full_queue_drops_and_counts() -> None:
    bench = Bench()
    for _ in range(judging.MAX_WAITING + 5):
        bench.take(GOOD)
    assert bench.counts == (0, 0, 5)


async def test_what_is_too_long_is_not_kept() -> None:
    bench = Bench()
    bench.take(Called("f", "x" * (judging.MAX_CASE_BYTES + 1)))
    bench.take(GOOD, offered=[Raw(b"1" * judging.MAX_CASE_BYTES)])
    assert bench.counts == (0, 0, 2)


async def test_the_bytes_that_wait_are_bounded() -> None:
    bench = Bench()
    large = [Raw(json.encode({"function": {"name": "f", "description": "x" * (judging.MAX_CASE_BYTES - 1_000)}}))]
    for _ in range(20):
        bench.take(GOOD, offered=large)
    assert bench.judge._waiting_bytes <= judging.MAX_WAITING_BYTES
    assert bench.count("unjudged") >= 4
    async with running(bench):
        await until(lambda: len(bench.heard) == 20 - bench.count("unjudged"))
    assert bench.judge._waiting_bytes == 0


async def test_names_that_clients_make_up_share_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "MAX_NAMES", 2)
    bench = Bench()
    for model in ("a", "b", "c", "d", "a"):
        bench.take(Called("f", "x" * (judging.MAX_CASE_BYTES + 1)), model=model)
    assert [bench.count("unjudged", model) for model in ("a", "b", "c", "other")] == [2, 1, 0, 2]
