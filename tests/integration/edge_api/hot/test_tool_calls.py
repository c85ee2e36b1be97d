"""Answers that call tools, in every dialect, unary and streamed: each is judged once, after its client had it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from control_plane.contracts.clock import SystemClock
from edge_api.listings.quality import MIN_SAMPLES, Quality
from edge_api.tool_calls.judge import CallJudge
from tests.integration.edge_api.hot.client import Answer, request
from tests.integration.edge_api.hot.conftest import HOME, OTHER, EdgeUnderTest, until
from tests.integration.edge_api.hot.datacenter import Datacenter, Upcall, chunk, final_usage, usage
from tests.integration.edge_api.hot.engine import FACTS, Engine, Said, reads
from tests.unit.edge_api.builders import MODEL, snapshot

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
NASTY = json.dumps({"city": 'a<b> & "q" \\ \n\t 😀 é </tool_call>'}, ensure_ascii=False)
Called = list[tuple[str, str]]
GOOD: Called = [("weather", NASTY)]
BAD: Called = [("weather", '{"city": "Paris"}'), ("weather", '{"town": "Paris"}')]
DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}),
    "messages": ("/v1/messages", {
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50,
        "tools": [{"name": "weather", "input_schema": SCHEMA}]}),
    "responses": ("/v1/responses", {"input": "hi", "store": False, "tools": [
        {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}]}),
}


class Judged:
    """An edge whose answers are judged, and the counts."""

    def __init__(self, edge: EdgeUnderTest) -> None:
        self.edge, self.quality = edge, Quality(SystemClock())

    def count(self, verdict: str, datacenter: str = HOME) -> int:
        labels = {"model": MODEL, "datacenter": datacenter, "verdict": verdict}
        return int(self.edge.metrics.registry.get_sample_value("meridian_edge_called_answers_total", labels) or 0)

    def counts(self) -> tuple[int, int, int]:
        return self.count("fine"), self.count("wrong"), self.count("unjudged")

    async def until_counted(self, *counts: int) -> None:
        await until(lambda: self.counts() == counts, 10)

    async def ask(self, dialect: str, **fields: Any) -> Answer:
        path, body = DIALECTS[dialect]
        return await self.edge.client.send(request(
            self.edge.client.key, {"model": MODEL, **body, **fields}, path=path))


@pytest.fixture
async def judged(edge: EdgeUnderTest, edge_loop: asyncio.AbstractEventLoop) -> AsyncIterator[Judged]:
    made = Judged(edge)
    judge = CallJudge(edge.metrics, made.quality.note_calls)
    edge.services.judge = judge
    running = asyncio.run_coroutine_threadsafe(judge.run(), edge_loop)
    yield made
    running.cancel()


def pieces(calls: Called) -> list[dict[str, Any]]:
    """The deltas of a stream that makes these calls: a call's name first, then its arguments in fragments."""
    found: list[dict[str, Any]] = []
    for index, (name, arguments) in enumerate(calls):
        found.append({"index": index, "id": f"call_{index}", "type": "function",
                      "function": {"name": name, "arguments": ""}})
        found += ({"index": index, "function": {"arguments": arguments[at:at + 5]}}
                  for at in range(0, len(arguments), 5))
    return found


def delta(**fields: Any) -> bytes:
    event = json.loads(chunk("", [7], completion=1)[6:])
    event["choices"][0]["delta"] = fields
    return b"data: " + json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def calls(*made: Called, finish: str = "tool_calls") -> Callable[[Upcall], Awaitable[None]]:
    """A datacenter that answers one request after the other with these calls."""
    left = list(made)

    async def script(call: Upcall) -> None:
        said = left.pop(0) if len(left) > 1 else left[0]
        if not call.body.get("stream"):
            message = {"role": "assistant", "content": None, "tool_calls": [
                {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for at, (name, arguments) in enumerate(said)]}
            await call.answer(200, {
                "id": "chatcmpl-1", "object": "chat.completion", "created": 5, "model": MODEL, "usage": usage(16, 9),
                "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}]})
            return
        await call.begin_stream()
        for piece in pieces(said):
            await call.send(delta(tool_calls=[piece]))
        await call.send(chunk("", [], finish=finish, completion=9), final_usage(16, 9), b"data: [DONE]\n\n")
        await call.end_stream()

    return script


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_answer_is_judged_once_in_every_dialect(
        judged: Judged, home: Datacenter, dialect: str, streamed: bool) -> None:
    home.script = calls(GOOD, BAD, GOOD)
    for _ in range(3):
        answer = await judged.ask(dialect, stream=streamed)
        assert answer.status == 200
    await judged.until_counted(2, 1, 0)
    assert [record.dialect for record in judged.edge.records()] == [dialect] * 3


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
@pytest.mark.parametrize("made", [[("Weather", NASTY)], [("weather", '{"city": "Par')]], ids=["name", "json"])
async def test_wrong_names_and_broken_json_count_too(
        judged: Judged, home: Datacenter, made: Called, streamed: bool) -> None:
    home.script = calls(made)
    await judged.ask("chat", stream=streamed)
    await judged.until_counted(0, 1, 0)


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_only_answers_that_ended_with_calls_are_asked_about(
        judged: Judged, home: Datacenter, finish: str, streamed: bool) -> None:
    home.script = calls(BAD, finish=finish)
    await judged.ask("chat", stream=streamed)
    home.script = calls(GOOD)
    await judged.ask("chat")
    await judged.until_counted(1, 0, 0)


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
async def test_a_request_for_several_choices_is_one_request(
        judged: Judged, home: Datacenter, streamed: bool) -> None:
    home.script = calls(GOOD, BAD, BAD, GOOD)
    await judged.ask("chat", stream=streamed, n=3)
    await judged.ask("chat", stream=streamed, n=2)
    await judged.until_counted(1, 1, 0)


async def test_a_call_that_went_on_in_another_datacenter_is_one_call(
        judged: Judged, home: Datacenter, other: Datacenter) -> None:
    """Its fragments from both are what the client has; the datacenter that ended it answers for it."""
    edge = judged.edge
    arguments = json.dumps({"city": "Paris or Lyon"})
    said = [Said([99], {"content": "ok"}),
            *(Said([100 + at], {"tool_calls": [piece]}) for at, piece in enumerate(pieces([("weather", arguments)])))]
    home.script = Engine(said, finish="tool_calls", cut_after=4)
    other.script = Engine(said, finish="tool_calls")
    edge.holder.take(snapshot(version=9, weights={HOME: 10_000, OTHER: 1}, ports=edge.ports, engine=FACTS))
    answer = await judged.ask("chat", stream=True, temperature=0)
    heard = "".join(call["function"].get("arguments", "") for call in reads(answer.events)["calls"])
    assert heard == arguments
    assert edge.records()[0].resumes == 1
    await until(lambda: judged.count("fine", OTHER) == 1, 10)
    assert judged.count("wrong", OTHER) == judged.count("wrong") == 0


async def test_a_client_that_leaves_is_not_asked_about(judged: Judged, home: Datacenter) -> None:
    async def script(call: Upcall) -> None:
        await call.begin_stream()
        await call.send(delta(tool_calls=pieces(BAD)[:1]))
        await call.until_abandoned()

    home.script = script
    async with judged.edge.client.connection() as connection:
        await connection.send(judged.edge.client.request(stream=True, tools=[TOOL]))
        await connection.read_head()
        await connection.read_chunk()
    await judged.edge.record()
    home.script = calls(GOOD)
    await judged.ask("chat")
    await judged.until_counted(1, 0, 0)


async def test_an_answer_without_tools_to_call_is_wrong(judged: Judged, home: Datacenter) -> None:
    home.script = calls(GOOD)
    await judged.ask("chat", tools=None)
    await judged.until_counted(0, 1, 0)


async def test_calls_that_no_client_could_read_are_wrong(judged: Judged, home: Datacenter) -> None:
    async def script(call: Upcall) -> None:
        await call.answer(200, {"id": "a", "usage": usage(1, 1), "choices": [
            {"message": {"tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Paris"}}}]},
             "finish_reason": "tool_calls"}]})

    home.script = script
    await judged.ask("chat")
    await judged.until_counted(0, 1, 0)


async def test_a_schema_that_takes_for_ever_delays_no_answer(judged: Judged, home: Datacenter) -> None:
    evil = {"type": "function", "function": {"name": "weather", "parameters": {
        "properties": {"city": {"pattern": "^(a+)+$"}}}}}
    home.script = calls([("weather", json.dumps({"city": "a" * 64 + "!"}))])
    loop = asyncio.get_running_loop()
    for _ in range(20):
        begun_s = loop.time()
        assert (await judged.ask("chat", tools=[evil])).status == 200
        assert loop.time() - begun_s < 0.5
    await judged.until_counted(0, 0, 20)


async def test_the_rate_is_listed_once_enough_is_known(judged: Judged, home: Datacenter) -> None:
    home.script = calls(*[BAD] * 5, GOOD)
    async with judged.edge.client.connection() as connection:
        for _ in range(MIN_SAMPLES):
            assert judged.quality.figures(MODEL, HOME)["tool_call_error_rate_1d"] is None
            await connection.send(judged.edge.client.request(tools=[TOOL]))
            await connection.read_answer()
    await judged.until_counted(MIN_SAMPLES - 5, 5, 0)
    assert judged.quality.figures(MODEL, HOME)["tool_call_error_rate_1d"] == 0.05
