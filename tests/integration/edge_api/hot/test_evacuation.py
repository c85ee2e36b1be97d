"""A datacenter that is evacuated while it lives: what can go on elsewhere does, nothing that could finish breaks."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import pytest

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.usage import Attempt, Outcome
from edge_api.routing.evacuation import Evacuator
from tests.integration.edge_api.hot.client import Answer
from tests.integration.edge_api.hot.conftest import HOME, OTHER, EdgeUnderTest, ejections, until
from tests.integration.edge_api.hot.datacenter import Datacenter, Script, Upcall, refuses, whole_answer
from tests.integration.edge_api.hot.engine import FACTS, Engine, reads, spoken
from tests.integration.edge_api.hot.test_resume import GREEDY, resumes
from tests.unit.edge_api.builders import snapshot

WORDS = spoken("The", " cat", "", "", " 漢", " sat", "", " é", " on", " it.")
TEXT = "The cat 漢 sat é on it."
PAUSE_S = 0.05


def evacuated(edge: EdgeUnderTest, version: int, facts: EngineFacts = FACTS,
              weights: dict[str, int] | None = None) -> None:
    """A snapshot in which home is left, and the other one serves."""
    built = snapshot(version=version, weights=weights or {HOME: 0, OTHER: 1}, ports=edge.ports, engine=facts,
                     reason="evacuated")
    places = [place.model_copy(update={"evacuate": place.id == HOME}) for place in built.datacenters]
    edge.holder.take(built.model_copy(update={"datacenters": places}))


@pytest.fixture
async def moving(edge: EdgeUnderTest, edge_loop: asyncio.AbstractEventLoop) -> AsyncIterator[EdgeUnderTest]:
    """The edge with its evacuator; home has nearly all of the weight."""
    edge.holder.take(snapshot(version=5, weights={HOME: 10_000, OTHER: 1}, ports=edge.ports, engine=FACTS))
    running = asyncio.run_coroutine_threadsafe(Evacuator(edge.holder, edge.hot.open_at).run(), edge_loop)
    yield edge
    running.cancel()
    with suppress(asyncio.CancelledError, CancelledError):
        await asyncio.wrap_future(running)


async def asked_then_evacuated(edge: EdgeUnderTest, home: Datacenter, after_s: float, facts: EngineFacts = FACTS,
                               **fields: Any) -> Answer:
    """What a client reads whose request is at home when that is evacuated."""
    asking = asyncio.create_task(edge.client.ask(**GREEDY | fields))
    await until(lambda: home.seen)
    await asyncio.sleep(after_s)
    evacuated(edge, 6, facts)
    return await asking


@pytest.mark.parametrize("after_s", [PAUSE_S * at for at in (1, 2.5, 4, 6, 8)])
async def test_a_stream_goes_on_elsewhere_and_its_client_reads_one_answer(
        moving: EdgeUnderTest, home: Datacenter, other: Datacenter, after_s: float) -> None:
    home.script, other.script = Engine(WORDS, pause_s=PAUSE_S), Engine(WORDS, "chatcmpl-b")
    read = reads((await asked_then_evacuated(moving, home, after_s)).events)
    assert (read["content"], read["roles"], read["finish"], read["done"]) == (TEXT, 1, ["stop"], True)
    record = await moving.record()
    assert (record.outcome, record.completion_tokens) == (Outcome.COMPLETED, 11)
    assert [attempt.datacenter_id for attempt in record.attempts] in ([HOME, OTHER], [HOME])
    assert not any(attempt.failed for attempt in record.attempts)


async def test_a_move_is_no_failure_of_the_datacenter_and_ends_its_work(
        moving: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script, other.script = Engine(WORDS, pause_s=0.2), Engine(WORDS, "chatcmpl-b")
    await asked_then_evacuated(moving, home, 0.3)
    record = await moving.record()
    assert record.attempts == [Attempt(HOME, 200), Attempt(OTHER, 200, record.attempts[1].delivered)]
    assert (record.attempts[1].delivered > 0, record.resumes) == (True, 1)
    assert (ejections(moving, HOME), resumes(moving, "resumed")) == (0, 1)
    await home.seen[0].until_abandoned()
    await moving.until_idle()


async def test_a_stream_that_may_not_go_on_finishes_where_it_is(
        moving: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script, other.script = Engine(WORDS, pause_s=PAUSE_S), Engine(WORDS, "chatcmpl-b")
    answer = await asked_then_evacuated(moving, home, 0.1, frequency_penalty=0.5)
    assert (reads(answer.events)["content"], reads(answer.events)["done"]) == (TEXT, True)
    assert (await moving.record()).attempts == [Attempt(HOME, 200)]
    assert other.seen == []


async def test_a_stream_of_another_engine_finishes_where_it_is(
        moving: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script, other.script = Engine(WORDS, pause_s=PAUSE_S), Engine(WORDS, "chatcmpl-b")
    answer = await asked_then_evacuated(moving, home, 0.1, EngineFacts(identity="another"))
    assert reads(answer.events)["content"] == TEXT
    assert (await moving.record()).attempts == [Attempt(HOME, 200)]


async def test_a_stream_with_nowhere_to_go_finishes_where_it_is(
        moving: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = Engine(WORDS, pause_s=PAUSE_S)
    asking = asyncio.create_task(moving.client.ask(**GREEDY))
    await until(lambda: home.seen)
    evacuated(moving, 6, weights={HOME: 0, OTHER: 0})
    assert reads((await asking).events)["content"] == TEXT
    assert other.seen == []


async def dies(call: Upcall) -> None:
    call.reset()


@pytest.mark.parametrize("script", [refuses(500), dies])
async def test_a_stream_stays_when_the_other_datacenter_cannot_take_it(
        moving: EdgeUnderTest, home: Datacenter, other: Datacenter, script: Script) -> None:
    home.script, other.script = Engine(WORDS, pause_s=PAUSE_S), script
    answer = await asked_then_evacuated(moving, home, 0.1)
    assert (reads(answer.events)["content"], reads(answer.events)["done"]) == (TEXT, True)
    assert (await moving.record()).attempts == [Attempt(HOME, 200)]
    assert other.seen


async def test_a_stream_that_ends_while_it_is_held_ends_whole(
        moving: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    inner = Engine(WORDS, "chatcmpl-b")

    async def slow(call: Upcall) -> None:
        await asyncio.sleep(0.5)
        await (refuses(500) if "annotations" in call.body.get("nvext", {}) else inner)(call)

    home.script, other.script = Engine(WORDS, pause_s=0.02), slow
    answer = await asked_then_evacuated(moving, home, 0.03)
    assert (reads(answer.events)["content"], reads(answer.events)["done"]) == (TEXT, True)
    assert (await moving.record()).attempts == [Attempt(HOME, 200)]


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_request_without_an_answer_yet_is_sent_elsewhere(
        moving: EdgeUnderTest, home: Datacenter, other: Datacenter, streamed: bool) -> None:
    async def silent(call: Upcall) -> None:
        await call.until_abandoned()

    async def answers(call: Upcall) -> None:
        await call.answer(200, whole_answer("here"))

    home.script, other.script = silent, Engine(WORDS) if streamed else answers
    answer = await asked_then_evacuated(moving, home, 0.05, stream=streamed, stream_options=None)
    assert answer.status == 200
    record = await moving.record()
    assert record.attempts == [Attempt(HOME, 0), Attempt(OTHER, 200)]
    assert ejections(moving, HOME) == 0


async def test_a_client_that_leaves_in_the_middle_of_a_move_leaves_nothing_open(
        moving: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    async def slow(call: Upcall) -> None:
        await call.until_abandoned()

    home.script, other.script = Engine(WORDS, pause_s=0.2), slow
    asking = asyncio.create_task(moving.client.ask(**GREEDY))
    await until(lambda: home.seen)
    await asyncio.sleep(0.3)
    evacuated(moving, 6)
    await until(lambda: other.seen)
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    await moving.until_idle()
    await home.seen[0].until_abandoned()
    assert (await moving.record()).outcome is Outcome.CLIENT_GONE


async def test_many_streams_move_and_none_breaks(moving: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script, other.script = Engine(WORDS, pause_s=0.2), Engine(WORDS, "chatcmpl-b")
    asking = [asyncio.create_task(moving.client.ask(**GREEDY)) for _ in range(60)]
    await until(lambda: len(home.seen) == 60)
    assert moving.hot.open_streams() == {HOME: 60}
    evacuated(moving, 6)
    answers = await asyncio.gather(*asking)
    assert {reads(answer.events)["content"] for answer in answers} == {TEXT}
    await until(lambda: len(moving.records()) == 60)
    moved = [record for record in moving.records() if len(record.attempts) == 2]
    assert len(moved) >= 50
    await moving.until_idle()
    assert moving.hot.open_streams() == {}


async def test_when_it_is_over_home_is_home_again(moving: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    evacuated(moving, 6)
    assert (await moving.client.ask()).status == 200
    moving.holder.take(snapshot(version=7, weights={HOME: 10_000, OTHER: 1}, ports=moving.ports, engine=FACTS))
    assert (await moving.client.ask()).status == 200
    assert (len(other.seen), len(home.seen)) == (1, 1)
