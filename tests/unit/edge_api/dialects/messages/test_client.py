"""Anthropic's own client, unmodified, on what the dialect tells."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, ToolParam
from pydantic import BaseModel

from edge_api import errors
from edge_api.dialects.messages import COUNT_TOKENS, MESSAGES
from edge_api.errors import Fault, Refusal
from tests.unit.edge_api.dialects.small_edge import (
    LAST,
    NASTY,
    REQUEST_ID,
    USAGE,
    SmallEdge,
    answer,
    call,
    chunk,
    event,
    small_edge,
    stream,
)

TOOL: ToolParam = {"name": "write", "description": "Writes.", "input_schema": {
    "type": "object", "properties": {"text": {"type": "string"}}}}
ASK: Any = {"model": "claude-compat/z-ai/glm-5.3", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}


class City(BaseModel):
    """A client's own type."""

    name: str


@pytest.fixture(scope="module")
def running() -> Iterator[SmallEdge]:
    with small_edge(messages=MESSAGES, messages__count_tokens=COUNT_TOKENS) as edge:
        yield edge


@pytest.fixture
def edge(running: SmallEdge) -> SmallEdge:
    running.says, running.breaks = b"", None
    return running


@pytest.fixture
def client(edge: SmallEdge) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=edge.url, auth_token="k", max_retries=0) as client:
        yield client


def final(client: anthropic.Anthropic, **asked: Any) -> Message:
    with client.messages.stream(**{**ASK, **asked}) as stream:
        return stream.get_final_message()


def test_a_text_is_answered(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says = answer({"content": "Paris.", "reasoning_content": "Simple."})
    message = client.messages.create(**ASK)
    assert [block.to_dict() for block in message.content] == [
        {"type": "thinking", "thinking": "Simple.", "signature": ""}, {"type": "text", "text": "Paris."}]
    assert (message.stop_reason, message.role, message.model) == ("end_turn", "assistant", ASK["model"])
    assert message.id == f"msg_{REQUEST_ID.hex}"


def test_the_alias_asks_for_the_model_behind_it(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says = answer({"content": "x"})
    client.messages.create(**ASK)
    assert edge.upstream["model"] == "z-ai/glm-5.3"


def test_usage_tells_cached_tokens_apart_and_what_it_cost(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says = answer({"content": "x"})
    usage = client.messages.create(**ASK).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (6236, 139776, 412)
    assert usage.cache_creation_input_tokens == 0
    assert usage.output_tokens_details
    assert usage.output_tokens_details.thinking_tokens == 120
    assert usage.service_tier == "standard"
    assert usage.to_dict()["cost"] == 0.02002336
    assert usage.to_dict()["cost_details"] == {"input": 0.0037416, "currency": "USD"}


def test_a_stream_gives_the_message_that_a_unary_answer_gives(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says = answer({"content": "Paris 🗼.", "reasoning_content": "Simple."})
    unary = client.messages.create(**ASK)
    edge.says = stream(chunk({"role": "assistant", "content": ""}), chunk({"reasoning_content": "Sim"}),
                       chunk({"reasoning_content": "ple."}), chunk({"content": "Paris "}), chunk({"content": "🗼."}),
                       chunk({}, "stop"))
    streamed = final(client).to_dict()
    expected = {**unary.to_dict(), "stop_details": None}  # the client adds it
    del expected["usage"]["cost"], expected["usage"]["cost_details"]  # and keeps no fields of others
    assert streamed == expected


def test_a_stream_starts_with_the_length_of_the_prompt_and_ends_with_the_cost(
        edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says = stream(chunk({"content": "x"}), chunk({}, "stop"))
    events = list(client.messages.create(**ASK, stream=True))
    assert [each.type for each in events] == ["message_start", "content_block_start", "content_block_delta",
                                              "content_block_stop", "message_delta", "message_stop"]
    assert events[0].type == "message_start"
    assert events[0].message.usage.input_tokens == 6236
    assert events[4].type == "message_delta"
    assert events[4].usage.cache_read_input_tokens == 139776
    assert events[4].usage.to_dict()["cost"] == 0.02002336


def test_a_stream_waits_for_the_length_of_the_prompt_as_long_as_there_is_nothing_to_tell(
        edge: SmallEdge, client: anthropic.Anthropic) -> None:
    silent, unknown = ({**chunk({"role": "assistant", "content": text}), "usage": None} for text in ("", "x"))
    edge.says = stream(silent, chunk({"content": "x"}), chunk({}, "stop"))
    starts = [each for each in client.messages.create(**ASK, stream=True) if each.type == "message_start"]
    assert [start.message.usage.input_tokens for start in starts] == [6236]
    edge.says = stream(silent, unknown, chunk({}, "stop"))
    starts = [each for each in client.messages.create(**ASK, stream=True) if each.type == "message_start"]
    assert [start.message.usage.input_tokens for start in starts] == [0]
    assert final(client).usage.input_tokens == 6236


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_calls_arguments_arrive_byte_exact_in_a_stream(edge: SmallEdge, client: anthropic.Anthropic,
                                                         size: int) -> None:
    arguments = json.dumps({"text": NASTY}, ensure_ascii=False)
    pieces = [arguments[at:at + size] for at in range(0, len(arguments), size)]
    edge.says = stream(chunk(call(0, "call_1", "write", "")), *(chunk(call(0, arguments=piece)) for piece in pieces),
                       chunk({}, "tool_calls"))
    message = final(client, tools=[TOOL])
    assert [block.to_dict() for block in message.content] == [
        {"type": "tool_use", "id": "call_1", "name": "write", "input": {"text": NASTY}}]
    assert message.stop_reason == "tool_use"


def test_a_calls_arguments_arrive_byte_exact_in_one_answer(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    arguments = json.dumps({"text": NASTY, "big": 12345678901234567890, "real": 1.0}, ensure_ascii=False)
    edge.says = answer({"content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "write", "arguments": arguments}}]}, "tool_calls")
    raw = client.messages.with_raw_response.create(**ASK, tools=[TOOL])
    assert arguments.encode() in raw.read()
    message = raw.parse()
    assert message.content[0].to_dict()["input"] == json.loads(arguments)
    assert message.stop_reason == "tool_use"


def test_parallel_calls_are_blocks_one_after_the_other(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says = stream(
        chunk({"content": "Two."}), chunk(call(0, "c0", "write", "")), chunk(call(0, arguments='{"text":')),
        chunk(call(1, "c1", "write", '{"text"')), chunk(call(0, arguments='"a"}')), chunk(call(1, arguments=':"b"}')),
        chunk({}, "tool_calls"))
    indexes = [each.index for each in client.messages.create(**ASK, stream=True) if hasattr(each, "index")]
    assert indexes == sorted(indexes)
    assert [block.to_dict() for block in final(client).content] == [
        {"type": "text", "text": "Two."},
        {"type": "tool_use", "id": "c0", "name": "write", "input": {"text": "a"}},
        {"type": "tool_use", "id": "c1", "name": "write", "input": {"text": "b"}}]


def test_hidden_thinking_is_not_told(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    hidden: Any = {"thinking": {"type": "adaptive", "display": "omitted"}}
    edge.says = stream(chunk({"reasoning_content": "psst"}), chunk({"content": "x"}), chunk({}, "stop"))
    assert [block.type for block in final(client, **hidden).content] == ["text"]
    edge.says = answer({"reasoning_content": "psst", "content": "x"})
    assert [block.type for block in client.messages.create(**ASK, **hidden).content] == ["text"]


@pytest.mark.parametrize(("finish_reason", "stop_reason"), [
    ("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")])
def test_why_it_stopped(edge: SmallEdge, client: anthropic.Anthropic, finish_reason: str, stop_reason: str) -> None:
    edge.says = stream(chunk({"content": "x"}), chunk({}, finish_reason))
    streamed = final(client)
    edge.says = answer({"content": "x"}, finish_reason)
    unary = client.messages.create(**ASK)
    assert (streamed.stop_reason, streamed.stop_sequence) == (stop_reason, None)
    assert (unary.stop_reason, unary.stop_sequence) == (stop_reason, None)


@pytest.mark.parametrize(("text", "finish_reason", "left", "stop_reason", "found"), [
    ("Paris. END", "stop", "Paris. ", "stop_sequence", "END"), ("Paris. EN", "stop", "Paris. EN", "end_turn", None),
    ("Paris. EN", "length", "Paris. EN", "max_tokens", None)])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_stop_string_is_named_and_left_out(
        edge: SmallEdge, client: anthropic.Anthropic, text: str, size: int, finish_reason: str, left: str,
        stop_reason: str, found: str | None) -> None:
    stops: Any = {"stop_sequences": ["nothing", "END"]}
    edge.says = stream(*(chunk({"content": text[at:at + size]}) for at in range(0, len(text), size)),
                       chunk({}, finish_reason))
    streamed = final(client, **stops)
    edge.says = answer({"content": text}, finish_reason)
    unary = client.messages.create(**ASK, **stops)
    for message in streamed, unary:
        assert [block.to_dict() for block in message.content] == [{"type": "text", "text": left}]
        assert (message.stop_reason, message.stop_sequence) == (stop_reason, found)
    assert edge.upstream["stop"] == ["nothing", "END"]
    assert edge.upstream["include_stop_str_in_output"] is True


def test_a_named_call_waits_for_its_result_though_engines_say_stop(edge: SmallEdge,
                                                                   client: anthropic.Anthropic) -> None:
    edge.says = stream(chunk(call(0, "c0", "write", "{}")), chunk({}, "stop"))
    assert final(client).stop_reason == "tool_use"


def test_a_call_that_was_cut_says_so(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    cut = '{"text": "half'
    edge.says = answer({"tool_calls": [{"id": "c0", "function": {"name": "write", "arguments": cut}}]}, "length")
    message = client.messages.create(**ASK)
    assert message.stop_reason == "max_tokens"
    assert message.content[0].to_dict()["input"] == {"unparsed_arguments": cut}


def test_an_answer_can_be_sent_back_as_it_came(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    arguments = json.dumps({"text": NASTY}, ensure_ascii=False)
    edge.says = stream(chunk({"reasoning_content": "Hm."}), chunk({"content": "Let me see."}),
                       chunk(call(0, "c0", "write", arguments)), chunk({}, "tool_calls"))
    first = final(client, tools=[TOOL])
    edge.says = answer({"content": "Done."})
    client.messages.create(**{**ASK, "messages": [
        *ASK["messages"], first.to_param(), {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c0", "content": "ok"}, {"type": "text", "text": "Go on."}]}]})
    user, assistant, *rest = edge.upstream["messages"]
    [sent] = assistant.pop("tool_calls")
    assert user == {"role": "user", "content": "hi"}
    assert assistant == {"role": "assistant", "content": "Let me see.", "reasoning_content": "Hm."}
    assert (sent["id"], sent["function"]["name"]) == ("c0", "write")
    assert json.loads(sent["function"]["arguments"]) == {"text": NASTY}
    assert rest == [{"role": "tool", "content": "ok", "tool_call_id": "c0"}, {"role": "user", "content": "Go on."}]


def test_an_answer_is_parsed_to_the_clients_own_type(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says = answer({"content": '{"name":"Paris"}'})
    assert client.messages.parse(**ASK, output_format=City).parsed_output == City(name="Paris")
    assert edge.upstream["response_format"]["json_schema"]["schema"]["required"] == ["name"]
    edge.says = stream(chunk({"content": '{"name":'}), chunk({"content": '"Paris"}'}), chunk({}, "stop"))
    with client.messages.stream(**ASK, output_format=City) as told:
        assert told.get_final_message().parsed_output == City(name="Paris")


def test_a_tool_is_run_until_the_model_is_done(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    ran: list[str] = []

    @anthropic.beta_tool
    def write(text: str) -> str:
        """Writes.

        Args:
            text: What to write.
        """
        ran.append(text)
        edge.says = answer({"content": "Done."})
        return "ok"

    edge.says = answer({"tool_calls": [{"id": "c0", "function": {
        "name": "write", "arguments": json.dumps({"text": NASTY})}}]}, "tool_calls")
    last = client.beta.messages.tool_runner(**ASK, tools=[write]).until_done()
    assert ran == [NASTY]
    assert last.content[0].to_dict()["text"] == "Done."
    assert [message["role"] for message in edge.upstream["messages"]] == ["user", "assistant", "tool"]


def test_a_thread_is_refused_in_the_words_that_the_client_knows(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.types.ThreadUnsupportedRequestError):
        client.beta.messages.create(**ASK, thread={"type": "create"})


@pytest.mark.parametrize(("fault", "status", "kind", "error"), [
    (errors.INVALID_VALUE, 400, "invalid_request_error", anthropic.BadRequestError),
    (errors.INVALID_API_KEY, 401, "authentication_error", anthropic.AuthenticationError),
    (errors.Fault(402, "insufficient_quota", "insufficient_funds"), 402, "billing_error", anthropic.APIStatusError),
    (errors.PERMISSION_DENIED, 403, "permission_error", anthropic.PermissionDeniedError),
    (errors.MODEL_NOT_FOUND, 404, "not_found_error", anthropic.NotFoundError),
    (errors.PAYLOAD_TOO_LARGE, 413, "request_too_large", anthropic.APIStatusError),
    (errors.RATE_LIMITED, 429, "rate_limit_error", anthropic.RateLimitError),
    (errors.CAPACITY_EXHAUSTED, 529, "overloaded_error", anthropic.InternalServerError),
    (errors.UPSTREAM_UNAVAILABLE, 502, "api_error", anthropic.InternalServerError),
    (errors.UPSTREAM_TIMEOUT, 504, "timeout_error", anthropic.InternalServerError),
])
def test_an_error_has_its_type_and_status(edge: SmallEdge, client: anthropic.Anthropic, fault: errors.Fault,
                                          status: int, kind: str, error: type[anthropic.APIStatusError]) -> None:
    edge.says = Refusal(fault, "because", metadata={"scope": "team"})
    with pytest.raises(error) as raised:
        client.messages.create(**ASK)
    assert raised.value.status_code == status
    assert raised.value.request_id == f"req_{REQUEST_ID.hex}"
    assert raised.value.body == {"type": "error", "request_id": f"req_{REQUEST_ID.hex}", "error": {
        "type": kind, "message": "because", "code": fault.code, "metadata": {"scope": "team"}}}


def test_a_stream_that_breaks_raises_and_stops(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says, edge.breaks = [event(chunk({"content": "half"}))], Refusal(errors.UPSTREAM_UNAVAILABLE, "lost")
    seen: list[str] = []
    events = client.messages.create(**ASK, stream=True)
    with pytest.raises(anthropic.APIStatusError, match="lost") as raised:
        seen.extend(each.type for each in events)
    assert seen == ["message_start", "content_block_start", "content_block_delta"]
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["error"]["type"] == "api_error"


@pytest.mark.parametrize(("fault", "retryable"), [(errors.UPSTREAM_UNAVAILABLE, True), (errors.INVALID_VALUE, False)])
def test_a_stream_that_breaks_says_whether_to_try_again(
        edge: SmallEdge, client: anthropic.Anthropic, fault: Fault, retryable: bool) -> None:
    edge.says, edge.breaks = [event(chunk({"content": "half"}))], Refusal(fault, "lost", metadata={"scope": "team"})
    with pytest.raises(anthropic.APIStatusError) as raised:
        final(client)
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["error"]["metadata"] == {"scope": "team", "retryable": retryable}


def test_a_stream_that_breaks_before_its_first_event_raises(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says, edge.breaks = [], Refusal(errors.CAPACITY_EXHAUSTED, "full")
    with pytest.raises(anthropic.APIStatusError) as raised:
        final(client)
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["error"]["type"] == "overloaded_error"


def test_words_that_are_no_chat_end_in_an_error(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says = [event(chunk({"content": "x"})), b"data: {\n\n", event(LAST)]
    with pytest.raises(anthropic.APIStatusError, match="could not be read"):
        final(client)


def test_an_answer_of_nothing_is_an_empty_message(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.says = [event(LAST)]
    message = final(client)
    assert message.content == []
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == USAGE["completion_tokens"]


def test_tokens_are_counted_without_an_answer(edge: SmallEdge, client: anthropic.Anthropic) -> None:
    edge.counted = 2095
    asked = {**ASK, "system": "Be brief.", "tools": [TOOL]}
    asked.pop("max_tokens")
    assert client.messages.count_tokens(**asked).input_tokens == 2095
    counted = edge.upstream
    edge.says = answer({"content": "x"})
    client.messages.create(**asked, max_tokens=7)
    assert edge.upstream == {**{key: value for key, value in counted.items() if key != "stream"}, "max_tokens": 7}
    assert counted["stream"] is True
    assert counted["max_tokens"] == 1


def test_a_conversation_that_ends_with_the_assistant_can_be_counted_and_not_continued(
        edge: SmallEdge, client: anthropic.Anthropic) -> None:
    messages: Any = [*ASK["messages"], {"role": "assistant", "content": "The answer is"}]
    assert client.messages.count_tokens(model=ASK["model"], messages=messages).input_tokens == edge.counted
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[1\].role"):
        client.messages.create(**{**ASK, "messages": messages})
