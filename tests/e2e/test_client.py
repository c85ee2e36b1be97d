"""What an application developer gets, with the unmodified OpenAI SDK."""

import asyncio
from decimal import Decimal

import httpx
import pytest
from openai import AsyncOpenAI

from tests.e2e.stack import LocalStack, until

pytestmark = pytest.mark.stack
MODEL = "sim/glm-5.3"
HELLO = [{"role": "user", "content": "hello there"}]


async def test_a_unary_answer_carries_usage_whose_cost_is_the_record_s(stack: LocalStack, client: AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=7)
    answer = raw.parse()
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7
    record = stack.record_of(raw.headers["x-request-id"])
    assert (record["completion_tokens"], record["outcome"], record["streamed"]) == (7, "completed", False)
    assert record["prompt_tokens"] == answer.usage.prompt_tokens
    shown = httpx.Response(200, content=raw.content).json()["usage"]["cost"]
    assert Decimal(record["cost_usd"]) == Decimal(str(shown)) > 0
    assert raw.headers["x-billed-team"]


async def test_a_stream_gives_every_token_and_no_usage_unasked(stack: LocalStack, client: AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=HELLO, max_tokens=20, stream=True)
    events = [event async for event in raw.parse()]
    words = "".join(event.choices[0].delta.content or "" for event in events)
    assert len(words.split()) == 20
    assert all(event.choices and event.usage is None for event in events)
    record = stack.record_of(raw.headers["x-request-id"])
    assert (record["completion_tokens"], record["streamed"], record["outcome"]) == (20, True, "completed")


async def test_a_stream_s_usage_comes_to_who_asked_and_equals_the_record(
        stack: LocalStack, client: AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=HELLO, max_tokens=5, stream=True, stream_options={"include_usage": True})
    events = [event async for event in raw.parse()]
    assert [event.usage is not None for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1].choices == []
    assert events[-1].usage is not None
    record = stack.record_of(raw.headers["x-request-id"])
    assert record["completion_tokens"] == events[-1].usage.completion_tokens == 5
    assert Decimal(record["cost_usd"]) == Decimal(str(events[-1].usage.model_extra["cost"]))  # type: ignore[index]


async def test_no_engine_field_reaches_the_client(stack: LocalStack) -> None:
    facts = stack.facts
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 3, "stream": True}
    headers = {"authorization": f"Bearer {facts['api_key']}"}
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(f"{facts['edge_url']}/chat/completions", json=body, headers=headers)
    assert answer.text.endswith("data: [DONE]\n\n")
    assert "nvext" not in answer.text
    assert "token_ids" not in answer.text


async def test_the_models_are_listed_with_their_prices_without_a_key(stack: LocalStack) -> None:
    facts = stack.facts
    async with httpx.AsyncClient(trust_env=False) as http:
        listed = (await http.get(f"{facts['edge_url']}/models")).json()["data"]
        one = (await http.get(f"{facts['edge_url']}/models/sim%2Fglm-5.3")).json()
    assert [model["id"] for model in listed] == [MODEL]
    assert one == listed[0]
    assert one["pricing"]["unit_prices"]["prompt"] == "0.0000006"


async def test_the_sdk_lists_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]


async def test_a_second_turn_finds_its_prefix_in_the_cache(stack: LocalStack, client: AsyncOpenAI) -> None:
    first = [{"role": "user", "content": "the same long beginning " * 60}]
    await client.chat.completions.create(model=MODEL, messages=first, max_tokens=2)
    again = await client.chat.completions.create(model=MODEL, messages=first, max_tokens=2)
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert (again.usage.prompt_tokens_details.cached_tokens or 0) > 500


async def test_fifty_parallel_streams_give_fifty_whole_answers_and_fifty_records(
        stack: LocalStack, client: AsyncOpenAI) -> None:
    before = stack.json("usage")["total"]["requests"]

    async def one() -> int:
        stream = await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=30, stream=True)
        return len("".join([event.choices[0].delta.content or "" async for event in stream]).split())

    assert await asyncio.gather(*(one() for _ in range(50))) == [30] * 50
    until(lambda: stack.json("usage")["total"]["requests"] == before + 50, 10, "fifty records")


async def test_a_client_that_leaves_ends_the_work_within_a_second_and_is_billed_for_what_came(
        stack: LocalStack, client: AsyncOpenAI) -> None:
    until(lambda: stack.inflight() == 0, 10, "idle datacenters")
    raw = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=HELLO, max_tokens=5000, stream=True)
    stream = raw.parse()
    got = 0
    async for _ in stream:
        got += 1
        if got == 20:
            break
    assert stack.inflight() == 1
    await stream.close()
    until(lambda: stack.inflight() == 0, 1.0, "the end of the upstream request")
    record = stack.record_of(raw.headers["x-request-id"])
    assert record["outcome"] == "client_gone"
    assert record["prompt_tokens"] > 0
    assert got - 1 <= record["completion_tokens"] < 1000


async def test_usage_is_visible_within_five_seconds(stack: LocalStack, client: AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=2)
    stack.record_of(raw.headers["x-request-id"], deadline_s=5.0)
