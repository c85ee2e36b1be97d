"""OpenAI's own client, unmodified, on what the dialect tells."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import FunctionToolParam, ParsedResponse
from pydantic import BaseModel

from edge_api import errors
from edge_api.dialects.responses import INPUT_TOKENS, RESPONSES
from edge_api.errors import Refusal
from tests.unit.edge_api.dialects.small_edge import (
    LAST,
    NASTY,
    REQUEST_ID,
    SmallEdge,
    answer,
    call,
    chunk,
    event,
    small_edge,
    stream,
)

TOOL: FunctionToolParam = {"type": "function", "name": "write", "description": "Writes.", "strict": None,
                           "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}
ASK: Any = {"model": "z-ai/glm-5.3", "input": "hi"}


class City(BaseModel):
    """A client's own type."""

    name: str


@pytest.fixture(scope="module")
def running() -> Iterator[SmallEdge]:
    with small_edge(responses=RESPONSES, responses__input_tokens=INPUT_TOKENS) as edge:
        yield edge


@pytest.fixture
def edge(running: SmallEdge) -> SmallEdge:
    running.says, running.breaks = b"", None
    return running


@pytest.fixture
def client(edge: SmallEdge) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{edge.url}/v1", api_key="k", max_retries=0) as client:
        yield client


def final(client: openai.OpenAI, **asked: Any) -> ParsedResponse[Any]:
    with client.responses.stream(**{**ASK, **asked}) as stream:
        return stream.get_final_response()


def test_a_text_is_answered(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = answer({"content": "Paris.", "reasoning_content": "Simple."})
    response = client.responses.create(**ASK)
    assert response.output_text == "Paris."
    assert [item.to_dict() for item in response.output] == [
        {"type": "reasoning", "id": f"rs_{REQUEST_ID.hex}_0", "status": "completed", "summary": [],
         "encrypted_content": None, "content": [{"type": "reasoning_text", "text": "Simple."}]},
        {"type": "message", "id": f"msg_{REQUEST_ID.hex}_1", "status": "completed", "role": "assistant",
         "content": [{"type": "output_text", "text": "Paris.", "annotations": [], "logprobs": []}]}]
    assert response.id == f"resp_{REQUEST_ID.hex}"
    assert response.status == "completed"


def test_usage_tells_what_it_cost(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = answer({"content": "x"})
    response = client.responses.create(**ASK)
    assert response.usage
    assert response.usage.to_dict() == {
        "input_tokens": 146012, "input_tokens_details": {"cached_tokens": 139776, "cache_write_tokens": 0},
        "output_tokens": 412, "output_tokens_details": {"reasoning_tokens": 120}, "total_tokens": 146424,
        "cost": 0.02002336, "cost_details": {"input": 0.0037416, "currency": "USD"}}


def test_what_was_asked_is_said_again(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = answer({"content": "{}"})
    response = client.responses.create(
        **ASK, instructions="Be brief.", metadata={"run": "7"}, tools=[TOOL], temperature=0.5, max_output_tokens=9,
        tool_choice={"type": "function", "name": "write"}, parallel_tool_calls=False, user="u", prompt_cache_key="k",
        reasoning={"effort": "low"},
        text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}})
    told = response.to_dict()
    assert told["tools"] == [TOOL]
    assert told["tool_choice"] == {"type": "function", "name": "write"}
    assert told["metadata"] == {"run": "7"}
    assert told["text"] == {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}},
                            "verbosity": "medium"}
    assert (response.instructions, response.temperature, response.top_p) == ("Be brief.", 0.5, 1.0)
    assert (response.max_output_tokens, response.parallel_tool_calls, response.user) == (9, False, "u")
    assert (told["store"], response.truncation, response.prompt_cache_key) == (False, "disabled", "k")


def test_a_stream_gives_the_response_that_a_unary_answer_gives(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = answer({"content": "Paris 🗼.", "reasoning_content": "Simple."})
    unary = client.responses.create(**ASK).to_dict()
    edge.says = stream(chunk({"role": "assistant", "content": ""}), chunk({"reasoning_content": "Sim"}),
                       chunk({"reasoning_content": "ple."}), chunk({"content": "Paris "}), chunk({"content": "🗼."}),
                       chunk({}, "stop"))
    events = list(client.responses.create(**ASK, stream=True))
    assert events[-1].type == "response.completed"
    assert events[-1].response.to_dict() == unary
    assert final(client).output_text == "Paris 🗼."


def test_a_stream_has_the_whole_family_of_events_in_order(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = stream(chunk({"reasoning_content": "a"}), chunk({"content": "b"}), chunk(call(0, "c", "write", "{}")),
                       chunk({}, "tool_calls"))
    events = list(client.responses.create(**ASK, stream=True))
    assert [each.type.removeprefix("response.") for each in events] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "completed"]
    assert [each.sequence_number for each in events if hasattr(each, "sequence_number")] == list(range(len(events)))
    places = [each.output_index for each in events if hasattr(each, "output_index")]
    assert places == [0] * 6 + [1] * 6 + [2] * 4


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_calls_arguments_arrive_byte_exact_in_a_stream(edge: SmallEdge, client: openai.OpenAI, size: int) -> None:
    arguments = json.dumps({"text": NASTY}, ensure_ascii=False)
    pieces = [arguments[at:at + size] for at in range(0, len(arguments), size)]
    edge.says = stream(chunk(call(0, "call_1", "write", "")), *(chunk(call(0, arguments=piece)) for piece in pieces),
                       chunk({}, "tool_calls"))
    [item] = final(client, tools=[TOOL]).output
    assert item.type == "function_call"
    assert (item.call_id, item.name, item.arguments, item.status) == ("call_1", "write", arguments, "completed")


def test_a_calls_arguments_arrive_byte_exact_in_one_answer(edge: SmallEdge, client: openai.OpenAI) -> None:
    arguments = json.dumps({"text": NASTY, "big": 12345678901234567890}, ensure_ascii=False, indent=1)
    edge.says = answer({"content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "write", "arguments": arguments}}]}, "tool_calls")
    [item] = client.responses.create(**ASK, tools=[TOOL]).output
    assert item.type == "function_call"
    assert (item.call_id, item.arguments) == ("call_1", arguments)


def test_an_answer_is_parsed_to_the_clients_own_type(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = stream(chunk({"content": '{"name":'}), chunk({"content": '"Paris"}'}), chunk({}, "stop"))
    assert final(client, text_format=City).output_parsed == City(name="Paris")
    edge.says = answer({"content": '{"name":"Paris"}'})
    assert client.responses.parse(**ASK, text_format=City).output_parsed == City(name="Paris")
    assert edge.upstream["response_format"]["json_schema"]["schema"]["required"] == ["name"]


def test_a_cut_answer_is_incomplete_and_no_other_is(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = answer({"content": "half"}, "length")
    unary = client.responses.create(**ASK)
    edge.says = stream(chunk({"reasoning_content": "r"}), chunk({"content": "half"}), chunk({}, "length"))
    last = list(client.responses.create(**ASK, stream=True))[-1]
    assert last.type == "response.incomplete"
    for response in unary, last.response:
        assert response.status == "incomplete"
        assert response.incomplete_details
        assert response.incomplete_details.reason == "max_output_tokens"
        assert response.output[-1].to_dict()["status"] == "incomplete"
    assert last.response.output[0].to_dict()["status"] == "completed"


def test_a_filtered_answer_is_incomplete(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = answer({"content": "h"}, "content_filter")
    details = client.responses.create(**ASK).incomplete_details
    assert details
    assert details.reason == "content_filter"


def test_log_probabilities_come_with_their_text(edge: SmallEdge, client: openai.OpenAI) -> None:
    entry = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}
    asked = {**ASK, "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    edge.says = stream(chunk({"content": "x"}, logprobs={"content": [entry]}), chunk({}, "stop"))
    events = list(client.responses.create(**asked, stream=True))
    [delta] = [each for each in events if each.type == "response.output_text.delta"]
    assert delta.logprobs[0].logprob == -0.5
    assert events[-1].type == "response.completed"
    streamed = events[-1].response.to_dict()
    edge.says = answer({"content": "x"}, logprobs={"content": [entry]})
    assert client.responses.create(**asked).to_dict() == streamed
    assert streamed["output"][0]["content"][0]["logprobs"] == [entry]
    assert (edge.upstream["logprobs"], edge.upstream["top_logprobs"]) == (True, 1)


@pytest.mark.parametrize(("fault", "code"), [(errors.UPSTREAM_UNAVAILABLE, "server_error"),
                                             (errors.CAPACITY_EXHAUSTED, "rate_limit_exceeded")])
def test_a_stream_that_breaks_ends_with_a_failed_response(edge: SmallEdge, client: openai.OpenAI, fault: errors.Fault,
                                                          code: str) -> None:
    edge.says, edge.breaks = [event(chunk({"reasoning_content": "r"})), event(chunk({"content": "half"}))], Refusal(
        fault, "lost", metadata={"attempts": 2.0})
    last = list(client.responses.create(**ASK, stream=True))[-1]
    assert last.type == "response.failed"
    assert last.response.status == "failed"
    assert last.response.error
    assert (last.response.error.code, last.response.error.message) == (code, "lost")
    assert last.response.error.to_dict()["metadata"] == {"attempts": 2.0, "code": fault.code, "retryable": True}
    assert [item.type for item in last.response.output] == ["reasoning"]
    with pytest.raises(RuntimeError, match=r"response\.completed"):
        final(client)


def test_words_that_are_no_chat_end_in_a_failed_response(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = [event(chunk({"content": "x"})), b"data: {\n\n", event(LAST)]
    assert list(client.responses.create(**ASK, stream=True))[-1].type == "response.failed"


def test_an_error_names_the_field_as_the_client_does(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = Refusal(errors.INVALID_VALUE, "'max_tokens' is 9; this model answers with at most 8", "max_tokens")
    with pytest.raises(openai.BadRequestError, match="'max_output_tokens' is 9") as raised:
        client.responses.create(**ASK)
    assert (raised.value.param, raised.value.code) == ("max_output_tokens", "invalid_value")


def test_an_error_of_no_field_is_told_as_it_is(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = Refusal(errors.CAPACITY_EXHAUSTED, "full")
    with pytest.raises(openai.RateLimitError) as raised:
        client.responses.create(**ASK)
    assert raised.value.code == "capacity_exhausted"


def test_tokens_are_counted_without_an_answer(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.counted = 11
    assert client.responses.input_tokens.count(**ASK, instructions="Be brief.").input_tokens == 11
    assert edge.upstream == {"model": ASK["model"], "stream": True, "max_tokens": 1, "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]}


def test_an_answer_can_be_sent_back_as_it_came(edge: SmallEdge, client: openai.OpenAI) -> None:
    edge.says = answer({"content": "Let me see.", "reasoning_content": "Hm.", "tool_calls": [
        {"id": "c0", "type": "function", "function": {"name": "write", "arguments": "{}"}}]}, "tool_calls")
    first: Any = client.responses.create(**ASK)
    edge.says = answer({"content": "Done."})
    client.responses.create(model=ASK["model"], input=[
        {"role": "user", "content": "hi"}, *first.output,
        {"type": "function_call_output", "call_id": "c0", "output": "ok"}])
    assert edge.upstream["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Let me see.", "reasoning_content": "Hm.", "tool_calls": [
            {"id": "c0", "type": "function", "function": {"name": "write", "arguments": "{}"}}]},
        {"role": "tool", "content": "ok", "tool_call_id": "c0"}]
