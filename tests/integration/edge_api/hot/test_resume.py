"""A stream that breaks after its first event goes on in another datacenter, and its client sees one answer."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.usage import Attempt, MeterSource, Outcome
from tests.integration.edge_api.hot.client import request
from tests.integration.edge_api.hot.conftest import HOME, OTHER, EdgeUnderTest, until
from tests.integration.edge_api.hot.datacenter import Datacenter, Upcall, refuses
from tests.integration.edge_api.hot.engine import FACTS, THINKS, Engine, Said, reads, spoken
from tests.unit.edge_api.builders import snapshot

GREEDY: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0}
WORDS = spoken("The", " cat", "", "", " 漢", " sat", "", " é", " on", " it.")
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def route(edge: EdgeUnderTest, facts: EngineFacts = FACTS, **ports: int) -> None:
    """Home is preferred, the other one serves too; both say the same of their engine."""
    weights = {HOME: 10_000, OTHER: 1}
    edge.holder.take(snapshot(version=9, weights=weights, ports={**edge.ports, **ports}, engine=facts))


def resumes(edge: EdgeUnderTest, result: str) -> float:
    return edge.metrics.registry.get_sample_value("meridian_edge_resumes_total", {"result": result}) or 0.0


async def names(edge: EdgeUnderTest) -> set[str]:
    """The id that all of an answer has."""
    return {f"gen_{(await edge.record()).request_id.hex}"}


async def cut(edge: EdgeUnderTest, home: Datacenter, other: Datacenter, answer: list[Said], at: int | None,
              facts: EngineFacts = FACTS, **fields: Any) -> dict[str, Any]:
    """What the client reads when home is cut after so many events."""
    route(edge, facts)
    home.script = Engine(answer, cut_after=at)
    other.script = Engine(answer, "chatcmpl-b")
    return reads((await edge.client.ask(**GREEDY | fields)).events)


@pytest.mark.parametrize("at", range(1, len(WORDS) + 1))
async def test_text_goes_on_wherever_it_is_cut(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, at: int) -> None:
    read = await cut(edge, home, other, WORDS, at)
    assert read["content"] == "The cat 漢 sat é on it."
    assert (read["ids"], read["roles"], read["finish"], read["done"]) == (await names(edge), 1, ["stop"], True)


async def test_the_usage_is_that_of_one_answer(edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    read = await cut(edge, home, other, WORDS, 4)
    [usage] = read["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (4, 11, 15)
    record = await edge.record()
    assert (record.outcome, record.meter, record.finish_reason) == (
        Outcome.COMPLETED, MeterSource.ENGINE, "stop")
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (4, 3, 11)
    assert (record.attempts, record.resumes) == ([Attempt(HOME, 200, failed=True), Attempt(OTHER, 200, 2)], 1)
    assert usage["cost"] == float(record.cost_usd)
    assert resumes(edge, "resumed") == 1


async def test_the_continuation_asks_for_what_is_left(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    await cut(edge, home, other, WORDS, 7, max_tokens=50, cache_salt="mine")
    [body] = other.script.seen  # type: ignore[attr-defined]
    assert body["max_tokens"] == 44
    assert body["nvext"] == {"extra_fields": ["completion_token_ids"],
                             "token_data": [11, 12, 13, 14, 100, 101, 102, 103, 104, 105]}
    assert "cache_salt" not in body


REASONED = [Said([100], {"reasoning_content": "hm"}), Said([101], {"reasoning_content": " so"}), Said([91], {}),
            *spoken("It", " is")]


@pytest.mark.parametrize("at", range(1, len(REASONED) + 1))
async def test_reasoning_goes_on_inside_and_after(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, at: int) -> None:
    facts = FACTS.model_copy(update={"reasoning": THINKS})
    read = await cut(edge, home, other, REASONED, at, facts)
    assert (read["reasoning"], read["content"], read["done"]) == ("hm so", "It is", True)
    [body] = other.script.seen  # type: ignore[attr-defined]
    assert body.get("chat_template_args") == ({"enable_thinking": False} if at > 3 else None)


CALLED = [*spoken("I", " call"), Said([7, 8, 9], {"tool_calls": [{"index": 0, **CALL}]})]


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_tools_go_on_before_and_after_a_call(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, at: int, choice: str) -> None:
    read = await cut(edge, home, other, CALLED, at, tools=[TOOL], tool_choice=choice)
    assert (read["content"], read["calls"], read["done"]) == ("I call", [{"index": 0, **CALL}], True)
    [body] = other.script.seen  # type: ignore[attr-defined]
    assert body["tool_choice"] == ("auto" if at == 3 else choice)
    assert read["finish"] == (["tool_calls"] if at == 3 else ["stop"])


async def test_a_completion_goes_on(edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    route(edge)
    home.script, other.script = Engine(WORDS, "cmpl-a", cut_after=5), Engine(WORDS, "cmpl-b")
    body = {"model": edge.client.model, "prompt": "hi", **GREEDY}
    read = reads((await edge.client.send(request(edge.client.key, body, path="/v1/completions"))).events)
    assert (read["content"], read["ids"], read["done"]) == ("The cat 漢 sat é on it.", await names(edge), True)


@pytest.mark.parametrize("at", range(1, len(WORDS) + 1))
async def test_stop_strings_lose_and_double_nothing(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, at: int) -> None:
    read = await cut(edge, home, other, WORDS, at, stop=[" ca", "zz"])
    assert (read["content"], read["done"]) == ("The cat 漢 sat é on it.", True)


async def error_event(call: Upcall) -> None:
    """The datacenter's own word that it cannot go on: a worker of its died."""
    await call.send(b'data: {"error":{"message":"worker lost","code":503}}\n\n', b"data: [DONE]\n\n")
    await call.end_stream()


@pytest.mark.parametrize("cut", [error_event, Upcall.reset])
async def test_a_second_break_goes_on_once_more(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, cut: Callable[[Upcall], Any]) -> None:
    route(edge)
    home.script, other.script = Engine(WORDS, cut_after=2, cut=cut), Engine(WORDS, "chatcmpl-b", cut_after=3, cut=cut)
    answer = await edge.client.ask(**GREEDY)
    read = reads(answer.events)
    record = await edge.record()
    assert (read["content"], read["done"], read["ids"]) == ("The cat 漢 sat é on it.", True, await names(edge))
    assert ([attempt.delivered for attempt in record.attempts], record.resumes) == ([0, 2, 5], 2)
    assert record.completion_tokens == 11


async def test_a_stream_goes_on_in_the_only_datacenter_if_that_said_that_it_broke(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    edge.holder.take(snapshot(version=9, weights={HOME: 1}, ports=edge.ports, engine=FACTS))
    home.script = Engine(WORDS, cut_after=2, cut=error_event)
    assert reads((await edge.client.ask(**GREEDY)).events)["content"] == "The cat 漢 sat é on it."
    assert [attempt.datacenter_id for attempt in (await edge.record()).attempts] == [HOME, HOME]


async def test_a_stream_waits_for_the_only_datacenter_to_come_back(edge: EdgeUnderTest, home: Datacenter) -> None:
    edge.holder.take(snapshot(version=9, weights={HOME: 1}, ports=edge.ports, engine=FACTS))
    home.script = Engine(WORDS, cut_after=2)
    assert reads((await edge.client.ask(**GREEDY)).events)["content"] == "The cat 漢 sat é on it."
    assert (await edge.record()).attempts == [Attempt(HOME, 200, failed=True), Attempt(HOME, 200, 2)]


async def test_a_stream_waits_for_one_of_two_datacenters_that_died_within_a_second(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    async def dies(call: Upcall) -> None:
        call.reset()
        await other.close()

    route(edge)
    home.script, other.script = Engine(WORDS, cut_after=2), dies
    asking, begun_s = asyncio.create_task(edge.client.ask(**GREEDY)), asyncio.get_running_loop().time()
    assert reads((await asking).events)["content"] == "The cat 漢 sat é on it."
    assert asyncio.get_running_loop().time() - begun_s >= 0.9
    assert [attempt.datacenter_id for attempt in (await edge.record()).attempts] == [HOME, HOME]


async def test_a_stream_does_not_wait_for_ever(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def dies(call: Upcall) -> None:
        call.reset()
        await home.close()

    edge.holder.take(snapshot(version=9, weights={HOME: 1}, ports=edge.ports, engine=FACTS))
    home.script = Engine(WORDS, cut_after=2, cut=dies)
    assert (await edge.client.ask(**GREEDY)).events[-1]["error"]["metadata"]["retryable"] is True
    assert sum(resumes(edge, reason) for reason in ("no_datacenter", "no_answer")) == 1


async def test_a_stream_whose_model_nobody_serves_any_more_does_not_wait(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    async def drained(call: Upcall) -> None:
        edge.route_to(us_east_1=0)
        call.reset()

    edge.holder.take(snapshot(version=9, weights={HOME: 1}, ports=edge.ports, engine=FACTS))
    home.script, begun_s = Engine(WORDS, cut_after=2, cut=drained), asyncio.get_running_loop().time()
    assert "error" in (await edge.client.ask(**GREEDY)).events[-1]
    assert asyncio.get_running_loop().time() - begun_s < 1


async def test_an_event_that_was_cut_in_half_never_reaches_the_client(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    async def half(call: Upcall) -> None:
        await call.send(b'data: {"id":"chatcmpl-a","choices":[{"index":0,"delta":{"content":"lo')
        await asyncio.sleep(0.05)
        call.reset()

    route(edge)
    home.script, other.script = Engine(WORDS, cut_after=2, cut=half), Engine(WORDS, "chatcmpl-b")
    assert reads((await edge.client.ask(**GREEDY)).events)["content"] == "The cat 漢 sat é on it."


async def test_an_answer_at_its_limit_ends_whole(edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    read = await cut(edge, home, other, WORDS, 5, max_tokens=5)
    assert (read["content"], read["finish"], read["done"]) == ("The cat 漢", ["length"], True)
    assert read["usage"][0]["completion_tokens"] == (await edge.record()).completion_tokens == 5
    assert other.seen == []
    assert resumes(edge, "resumed") == 1


async def test_the_client_is_kept_waiting_with_comments(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    route(edge)
    home.script, inner = Engine(WORDS, cut_after=2), Engine(WORDS, "chatcmpl-b")

    async def slow(call: Upcall) -> None:
        if "annotations" in call.body["nvext"]:
            await asyncio.sleep(0.8)
        await inner(call)

    other.script = slow
    answer = await edge.client.ask(**GREEDY)
    assert answer.body[answer.body.index(b" cat"):].count(b": keep-alive") >= 1
    assert reads(answer.events)["done"]


NOT_RESUMED: dict[str, tuple[EngineFacts, dict[str, Any], str]] = {
    "another engine": (EngineFacts(), {}, "other_engine"),
    "a penalty": (FACTS, {"frequency_penalty": 0.5}, "penalty"),
    "media": (FACTS, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "media"),
    "no grammar service": (FACTS, {"response_format": {"type": "json_object"}}, "no_grammar"),
}


@pytest.mark.parametrize("why", NOT_RESUMED)
async def test_what_may_not_go_on_ends_with_one_honest_error(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, why: str) -> None:
    facts, fields, reason = NOT_RESUMED[why]
    route(edge, facts)
    home.script, other.script = Engine(WORDS, cut_after=2), Engine(WORDS, "chatcmpl-b")
    answer = await edge.client.ask(**GREEDY | fields)
    assert answer.events[-1]["error"]["metadata"]["retryable"] is True
    assert b"[DONE]" not in answer.body
    assert resumes(edge, reason) == 1
    record = await edge.record()
    assert (record.outcome, record.completion_tokens, record.resumes) == (Outcome.UPSTREAM_LOST, 2, 0)


async def test_who_insists_on_the_seed_gets_the_error(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    route(edge)
    home.script, other.script = Engine(WORDS, cut_after=2), Engine(WORDS, "chatcmpl-b")
    answer = await edge.client.ask("x-meridian-strict-seed: 1\r\n", **GREEDY | {"temperature": 1, "seed": 4})
    assert "error" in answer.events[-1]
    assert resumes(edge, "strict_seed") == 1


async def test_a_client_that_leaves_ends_the_search(edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    route(edge)
    home.script = Engine(WORDS, cut_after=2)
    held: list[Upcall] = []

    async def silent(call: Upcall) -> None:
        held.append(call)
        await call.until_abandoned()

    other.script = silent
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(**GREEDY))
        await until(lambda: held)
        connection.reset()
    record = await edge.record()
    assert (record.outcome, record.completion_tokens) == (Outcome.CLIENT_GONE, 2)
    await edge.until_idle()
    async with asyncio.timeout(2):
        await held[0].until_abandoned()


async def test_a_client_that_leaves_before_its_continuation_begins_ends_that(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    route(edge)
    home.script, engine = Engine(WORDS, cut_after=2), Engine(WORDS)
    asked, abandoned = asyncio.Event(), asyncio.Event()

    async def silent(call: Upcall) -> None:
        if "annotations" in call.body.get("nvext", {}):
            await engine(call)  # what the prompt's ids are
        else:
            asked.set()
            await call.until_abandoned()
            abandoned.set()

    other.script = silent
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(**GREEDY))
        await asyncio.wait_for(asked.wait(), 2)
        connection.reset()
    await asyncio.wait_for(abandoned.wait(), 1)
    assert (await edge.record()).outcome is Outcome.CLIENT_GONE
    await edge.until_idle()


async def test_a_datacenter_that_does_not_go_on_costs_the_client_one_error(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    async def dies(call: Upcall) -> None:
        home.script = refuses(400)
        call.reset()

    route(edge)
    home.script, other.script = Engine(WORDS, cut_after=2, cut=dies), refuses(400)
    answer = await edge.client.ask(**GREEDY)
    assert answer.events[-1]["error"]["code"] == "upstream_unavailable"
    assert resumes(edge, "no_answer") == 1
    assert (await edge.record()).completion_tokens == 2


async def test_a_continuation_that_says_something_else_is_not_told(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    route(edge)
    home.script = Engine(spoken("a", "b"), cut_after=2)
    other.script = Engine(spoken("a", "x", "y"), "chatcmpl-b")
    answer = await edge.client.ask(**GREEDY, stop=["zz"])
    assert "error" in answer.events[-1]
    assert reads(answer.events)["content"] == "ab"


async def test_a_stream_that_had_only_its_role_is_sent_again(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    answer = [Said([], {"content": ""}), *WORDS]
    read = await cut(edge, home, other, answer, 1, EngineFacts())
    assert (read["content"], read["ids"], read["roles"]) == ("The cat 漢 sat é on it.", await names(edge), 1)
    record = await edge.record()
    assert (record.completion_tokens, record.resumes) == (11, 0)


async def test_all_streams_of_a_dead_datacenter_go_on(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    route(edge)
    home.script, other.script = Engine(WORDS, pause_s=0.1), Engine(WORDS, "chatcmpl-b")
    asking = [asyncio.create_task(edge.client.ask(**GREEDY)) for _ in range(60)]
    await until(lambda: len(home.seen) == 60)
    await asyncio.sleep(0.3)
    await home.close()
    read = [reads(answer.events) for answer in await asyncio.gather(*asking)]
    assert all(one["content"] == "The cat 漢 sat é on it." and one["done"] for one in read)
    assert {len(one["ids"]) for one in read} == {1}
    await until(lambda: len(edge.records()) == 60)
    assert {record.completion_tokens for record in edge.records()} == {11}
    await edge.until_idle()


async def test_another_dialect_is_told_one_answer(edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    route(edge)
    home.script, other.script = Engine(WORDS, cut_after=6), Engine(WORDS, "chatcmpl-b")
    body = {"model": edge.client.model, "max_tokens": 50, "stream": True, "temperature": 0,
            "messages": [{"role": "user", "content": "hi"}]}
    answer = await edge.client.send(request(edge.client.key, body, path="/v1/messages"))
    events = [json.loads(line[6:]) for line in answer.body.split(b"\n") if line.startswith(b"data: ")]
    assert "".join(event["delta"].get("text", "") for event in events
                   if event["type"] == "content_block_delta") == "The cat 漢 sat é on it."
    assert [event["type"] for event in events].count("message_start") == 1
    assert [event["usage"]["output_tokens"] for event in events if event["type"] == "message_delta"] == [11]
    record = await edge.record()
    assert (record.dialect, record.resumes, record.completion_tokens) == ("messages", 1, 11)


async def test_an_openai_sdk_reads_one_stream(edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    route(edge)
    home.script, other.script = Engine(CALLED, cut_after=2), Engine(CALLED, "chatcmpl-b", finish="tool_calls")
    url = f"http://127.0.0.1:{edge.client.port}/v1"
    async with openai.AsyncOpenAI(api_key=edge.client.key, base_url=url, max_retries=0) as sdk, \
            sdk.chat.completions.stream(
                model=edge.client.model, messages=[{"role": "user", "content": "hi"}], temperature=0,
                tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]) as stream:
        final = await stream.get_final_completion()
    [choice] = final.choices
    assert (choice.message.content, choice.finish_reason) == ("I call", "tool_calls")
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.arguments == '{"x": 1}'
