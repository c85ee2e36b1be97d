"""Requests with `n`: as many requests upstream, one answer, one record."""

import asyncio
import json

import pytest

from control_plane.contracts.pricing import rate, usd_text
from control_plane.contracts.usage import MeterSource, Outcome, UsageOpen
from tests.integration.edge_api.hot.client import request
from tests.integration.edge_api.hot.conftest import HOME, OTHER, EdgeUnderTest, until
from tests.integration.edge_api.hot.datacenter import (
    DONE,
    Datacenter,
    Upcall,
    chunk,
    refuses,
    stream_of,
    streams,
    whole_answer,
)
from tests.unit.edge_api.builders import PRICE


class Numbered:
    """Answers each request with another word, unary or streamed."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, call: Upcall) -> None:
        self.count += 1
        word = f" word{self.count}"
        if not call.body.get("stream"):
            await call.answer(200, whole_answer(word, prompt=50, completion=2 + self.count, cached=20))
            return
        await call.begin_stream()
        for event in stream_of([word, word], prompt=50, cached=20):
            await call.send(event)
        await call.end_stream()


def texts(events: list[dict[str, object]]) -> dict[int, str]:
    """What each choice said."""
    said: dict[int, str] = {}
    for event in events:
        for choice in event["choices"] if isinstance(event, dict) else ():  # type: ignore[attr-defined]
            said[choice["index"]] = said.get(choice["index"], "") + (choice["delta"].get("content") or "")
    return said


async def test_a_unary_request_gets_its_choices_in_one_answer(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = Numbered()
    answer = (await edge.client.ask(n=3)).json
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert sorted(choice["message"]["content"] for choice in answer["choices"]) == [" word1", " word2", " word3"]
    assert len(home.seen) == 3
    assert all("n" not in call.body for call in home.seen)


async def test_the_prompt_is_billed_once_and_the_completions_together(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = Numbered()
    usage = (await edge.client.ask(n=3)).json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (50, 12, 62)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 20}
    record = await edge.record()
    cost = usd_text(rate(PRICE, 50, 20, 12).total_usd)
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (50, 20, 12)
    assert (record.cost_usd, f"{usage['cost']:.12f}".rstrip("0")) == (cost, cost)
    assert [attempt.datacenter_id for attempt in record.attempts] == [HOME] * 3
    assert len([frame for frame in edge.frames() if isinstance(frame, UsageOpen)]) == 1


async def test_a_stream_tells_each_choice_under_its_index_and_one_id(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = Numbered()
    answer = await edge.client.ask(stream=True, n=2, stream_options={"include_usage": True})
    assert set(texts(answer.events).values()) == {" word1 word1", " word2 word2"}
    assert set(texts(answer.events)) == {0, 1}
    chunks = [event for event in answer.events if isinstance(event, dict)]
    assert len({event["id"] for event in chunks}) == 1
    finishes = [choice["index"] for event in chunks for choice in event["choices"] if choice["finish_reason"]]
    assert sorted(finishes) == [0, 1]
    assert answer.events[-1] == "[DONE]"
    assert answer.body.count(b"[DONE]") == 1
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], 4)
    assert chunks[-1]["usage"]["prompt_tokens"] == 50


async def test_choices_first_come_in_their_order_whoever_answers_first(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def last_is_first(call: Upcall) -> None:
        await call.begin_stream()
        await asyncio.sleep(0.1 * (9 - call.body["seed"]))
        for event in stream_of([f" seed{call.body['seed']}"]):
            await call.send(event)
        await call.end_stream()

    home.script = last_is_first
    events = (await edge.client.ask(stream=True, n=3, seed=7)).events
    order = [choice["index"] for event in events if isinstance(event, dict) for choice in event["choices"]]
    assert list(dict.fromkeys(order)) == [0, 1, 2]
    assert texts(events) == {0: " seed7", 1: " seed8", 2: " seed9"}
    roles = [choice["index"] for event in events if isinstance(event, dict) for choice in event["choices"]
             if "role" in choice["delta"]]
    assert roles.count(0) == roles.count(1) == roles.count(2)


async def test_a_stream_of_several_choices_has_one_record(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = Numbered()
    answer = await edge.client.ask(stream=True, n=2)
    assert not any("usage" in event for event in answer.events if isinstance(event, dict))
    record = await edge.record()
    assert (record.prompt_tokens, record.completion_tokens, record.outcome) == (50, 4, Outcome.COMPLETED)


async def test_each_choice_has_its_own_seed(edge: EdgeUnderTest, home: Datacenter) -> None:
    await edge.client.ask(n=3, seed=7)
    assert sorted(call.body["seed"] for call in home.seen) == [7, 8, 9]


@pytest.mark.parametrize("n", [0, -1, 9])
async def test_a_number_that_cannot_be_is_refused_and_named(edge: EdgeUnderTest, home: Datacenter, n: int) -> None:
    answer = await edge.client.ask(n=n)
    assert (answer.status, answer.error["param"]) == (400, "n")
    assert not home.seen


@pytest.mark.parametrize("streamed", [True, False])
async def test_choices_go_elsewhere_when_home_fails(
        edge: EdgeUnderTest, home: Datacenter, streamed: bool) -> None:
    home.script = refuses(503)
    edge.prefer_home()
    answer = await edge.client.ask(n=2, stream=streamed)
    assert answer.status == 200
    record = await edge.record()
    assert sorted(attempt.datacenter_id for attempt in record.attempts) == [OTHER, OTHER, HOME, HOME]


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_choice_that_is_refused_refuses_the_request(
        edge: EdgeUnderTest, home: Datacenter, streamed: bool) -> None:
    home.script = refuses(400, {"message": "bad schema", "type": "Bad Request", "code": 400})
    answer = await edge.client.ask(n=3, stream=streamed)
    assert (answer.status, answer.error["message"]) == (400, "bad schema")
    record = await edge.record()
    assert (record.cost_usd, record.http_status) == ("0", 400)
    await edge.until_idle()


async def test_a_stream_that_loses_a_choice_ends_with_one_error_and_bills_what_was_told(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    calls = 0

    async def script(call: Upcall) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await streams(chunk(" a", [1], completion=1, prompt=50), chunk(" b", [2], completion=2, prompt=50),
                          pause_s=0.1, then=Upcall.reset)(call)
        else:
            await streams(*(chunk(f" {n}", [n], completion=n, prompt=50) for n in range(1, 40)), pause_s=0.05)(call)

    home.script = script
    answer = await edge.client.ask(stream=True, n=2)
    errors = [event for event in answer.events if "error" in event]
    assert len(errors) == 1
    assert answer.events[-1] == errors[0]
    assert DONE not in answer.body
    record = await edge.record()
    assert (record.outcome, record.prompt_tokens, record.meter) == (
        Outcome.UPSTREAM_LOST, 50, MeterSource.TOKEN_IDS)
    assert 3 <= record.completion_tokens <= 12
    await edge.until_idle()


async def test_a_client_that_leaves_stops_every_choice(edge: EdgeUnderTest, home: Datacenter) -> None:
    abandoned: list[int] = []

    async def script(call: Upcall) -> None:
        await call.begin_stream()
        await call.send(chunk(" a", [1], completion=1, prompt=50))
        await call.until_abandoned()
        abandoned.append(1)

    home.script = script
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True, n=3))
        await connection.read_head()
        for _ in range(3):
            await connection.read_chunk()
    await until(lambda: len(abandoned) == 3)
    record = await edge.record()
    assert (record.outcome, record.prompt_tokens) == (Outcome.CLIENT_GONE, 50)
    assert 1 <= record.completion_tokens <= 3
    await edge.until_idle()


async def test_a_completions_request_has_choices_too(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def script(call: Upcall) -> None:
        await call.answer(200, {
            "id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m",
            "choices": [{"text": " x", "index": 0, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}})

    home.script = script
    body = {"model": edge.client.model, "prompt": "hi", "n": 2, "max_tokens": 1}
    answer = await edge.client.send(request(edge.client.key, body, path="/v1/completions"))
    assert [choice["index"] for choice in answer.json["choices"]] == [0, 1]
    assert json.loads(home.seen[0].raw)["prompt"] == "hi"
    assert answer.json["usage"]["completion_tokens"] == 2


async def test_choices_are_relayed_as_they_come(edge: EdgeUnderTest, home: Datacenter) -> None:
    """A slow choice does not hold a fast one back."""
    go_on = asyncio.Event()
    calls = 0

    async def script(call: Upcall) -> None:
        nonlocal calls
        calls += 1
        number = calls
        await call.begin_stream()
        if number == 1:
            await go_on.wait()
        for event in stream_of([f" {number}"]):
            await call.send(event)
        await call.end_stream()

    home.script = script
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True, n=2))
        await connection.read_head()
        seen = b""
        while b'" 2"' not in seen:
            seen += await connection.read_chunk()
        assert b'" 1"' not in seen
        go_on.set()
        while piece := await connection.read_chunk():
            seen += piece
    assert b'" 1"' in seen
