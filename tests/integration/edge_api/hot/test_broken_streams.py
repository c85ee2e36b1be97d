"""A stream that breaks after its first event: one honest error, and a bill for what was delivered."""

import asyncio
import json

import pytest

from control_plane.contracts.pricing import rate, usd_text
from control_plane.contracts.usage import MeterSource, Outcome
from tests.integration.edge_api.hot.conftest import HOME, EdgeUnderTest, ejections
from tests.integration.edge_api.hot.datacenter import DONE, Datacenter, Upcall, chunk, streams
from tests.unit.edge_api.builders import PRICE

BEGUN = (chunk(" a", [1, 2], completion=2, prompt=50, cached=20), chunk(" b", [3], completion=3, prompt=50, cached=20))
DYNAMO_ERROR = b'data: {"error":{"message":"worker lost at 10.0.0.1","type":"x","code":503}}\n\n'
NAMED_ERROR = b'event: error\ndata: {"message":"worker lost","code":503}\n\n'


BREAKS = {
    "reset": streams(*BEGUN, then=Upcall.reset),
    "end without a finish": streams(*BEGUN),
    "error event, then DONE": streams(*BEGUN, DYNAMO_ERROR, DONE),
    "named error event": streams(*BEGUN, NAMED_ERROR, DONE),
    "error event in the same read": streams(BEGUN[0], BEGUN[1] + DYNAMO_ERROR + DONE),
    "silence": streams(*BEGUN, then=Upcall.until_abandoned),
}


@pytest.mark.parametrize("kind", BREAKS)
async def test_a_broken_stream_ends_with_one_honest_error(edge: EdgeUnderTest, home: Datacenter, kind: str) -> None:
    home.script = BREAKS[kind]
    answer = await edge.client.ask(stream=True, stream_options={"include_usage": True})
    assert answer.status == 200
    assert answer.text == " a b"
    [error] = [event for event in answer.events if "error" in event]
    assert answer.events[-1] == error
    assert error["choices"][0]["finish_reason"] == "error"
    assert error["error"]["code"] == "upstream_unavailable"
    assert (error["id"], error["model"]) == (answer.headers["x-generation-id"], "sim/glm-5.3")
    assert b"[DONE]" not in answer.body


@pytest.mark.parametrize("kind", BREAKS)
async def test_a_broken_stream_is_billed_for_what_was_delivered(
        edge: EdgeUnderTest, home: Datacenter, kind: str) -> None:
    home.script = BREAKS[kind]
    await edge.client.ask(stream=True)
    record = await edge.record()
    assert (record.outcome, record.meter, record.http_status) == (Outcome.UPSTREAM_LOST, MeterSource.TOKEN_IDS, 200)
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (50, 20, 3)
    assert record.cost_usd == usd_text(rate(PRICE, 50, 20, 3).total_usd)


async def test_the_datacenters_own_words_stay_inside(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = BREAKS["error event, then DONE"]
    assert b"10.0.0.1" not in (await edge.client.ask(stream=True)).body


async def test_a_stream_that_broke_before_any_token_costs_nothing(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(chunk("", [], completion=0, prompt=50), DYNAMO_ERROR, DONE)
    answer = await edge.client.ask(stream=True)
    assert "error" in answer.events[-1]
    record = await edge.record()
    assert (record.outcome, record.cost_usd, record.prompt_tokens) == (Outcome.UPSTREAM_LOST, "0", 0)


async def test_a_refusal_that_comes_as_the_first_event_is_told_as_one_and_sent_nowhere_else(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(b'data: {"error":{"message":"the schema is none","type":"x","code":400}}\n\n', DONE)
    [error] = [event["error"] for event in (await edge.client.ask(stream=True)).events]
    assert (error["code"], error["message"], error["metadata"]["retryable"]) == (
        "invalid_value", "the schema is none", False)
    record = await edge.record()
    assert (record.outcome, record.cost_usd, len(record.attempts)) == (Outcome.COMPLETED, "0", 1)


async def test_a_broken_stream_leaves_the_clients_connection_usable(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = BREAKS["error event, then DONE"]
    async with edge.client.connection() as connection:
        for _ in range(2):
            await connection.send(edge.client.request(stream=True))
            assert "error" in (await connection.read_answer()).events[-1]


async def test_a_stream_lost_after_its_finish_is_complete(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(*BEGUN, chunk("", [], finish="stop", completion=3, prompt=50), then=Upcall.reset,
                          pause_s=0.02)
    answer = await edge.client.ask(stream=True)
    assert answer.events[-1] == "[DONE]"
    assert (await edge.record()).outcome is Outcome.COMPLETED


async def test_an_endless_event_is_cut_off(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def endless(call: Upcall) -> None:
        await call.begin_stream()
        await call.send(BEGUN[0])
        piece = b"x" * (1 << 20)
        await call.send(b'data: {"choices":[{"delta":{"content":"')
        for _ in range(20):
            await call.send(piece)
        await call.until_abandoned()

    home.script = endless
    answer = await edge.client.ask(stream=True)
    assert "error" in answer.events[-1]
    assert len(answer.body) < 4096


async def test_a_slow_but_living_stream_is_not_broken(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def slow(call: Upcall) -> None:
        await call.begin_stream()
        for _ in range(4):
            await call.send(chunk(" a", [1], completion=1))
            await asyncio.sleep(0.45)
        await call.send(chunk("", [], finish="stop", completion=4), DONE)
        await call.end_stream()

    home.script = slow
    assert (await edge.client.ask(stream=True)).events[-1] == "[DONE]"


@pytest.mark.parametrize(("kind", "times"), [("silence", 0), ("reset", 1)])
async def test_a_silent_datacenter_is_slow_and_only_a_lost_one_is_ejected(
        edge: EdgeUnderTest, home: Datacenter, kind: str, times: int) -> None:
    home.script = BREAKS[kind]
    await edge.client.ask(stream=True)
    assert (await edge.record()).outcome is Outcome.UPSTREAM_LOST
    assert ejections(edge, HOME) == times


async def test_an_openai_sdk_sees_the_error(edge: EdgeUnderTest, home: Datacenter) -> None:
    import openai

    home.script = BREAKS["reset"]
    async with openai.AsyncOpenAI(
            api_key=edge.client.key, base_url=f"http://127.0.0.1:{edge.client.port}/v1", max_retries=0) as sdk:
        stream = await sdk.chat.completions.create(
            model=edge.client.model, messages=[{"role": "user", "content": "hi"}], stream=True)
        with pytest.raises(openai.APIError) as caught:
            async for _ in stream:
                pass
    assert json.loads(json.dumps(caught.value.body))["code"] == "upstream_unavailable"
