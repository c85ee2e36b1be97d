"""Every word that a dialect tells, held against the types of the real clients, which do not check them themselves."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from anthropic.types import ErrorResponse, Message, MessageTokensCount, RawMessageStreamEvent
from openai.types.responses import InputTokenCountResponse, Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter, ValidationError

from edge_api import errors
from edge_api.dialects.base import Asked, Dialect
from edge_api.dialects.messages import COUNT_TOKENS, MESSAGES
from edge_api.dialects.messages.errors import TYPES
from edge_api.dialects.responses import INPUT_TOKENS, RESPONSES
from edge_api.errors import Fault, Refusal
from tests.unit.edge_api.dialects.small_edge import NASTY, REQUEST_ID, answer, call, chunk, stream, told

LOGPROB = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": [
    {"token": "y", "logprob": -1, "bytes": [121]}]}
ARGUMENTS = json.dumps({"text": NASTY})
CHOICES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "text": ([{"role": "assistant", "content": ""}, {"content": "Paris"}, {"content": " 🗼"}], "stop"),
    "nothing": ([], "stop"),
    "reasoning": ([{"reasoning_content": "hm"}, {"content": "x"}], "stop"),
    "reasoning alone": ([{"reasoning": "hm"}], "length"),
    "cut": ([{"content": "half"}], "length"),
    "filtered": ([{"content": "h"}], "content_filter"),
    "call": ([call(0, "c0", "write", ""), call(0, arguments=ARGUMENTS)], "tool_calls"),
    "calls": ([{"reasoning_content": "hm"}, {"content": "Two."}, call(0, "c0", "write", "{}"),
               call(1, "c1", "write", "{}")], "tool_calls"),
    "call without an id": ([call(0, None, "write", "{}")], "tool_calls"),
    "call that was cut": ([call(0, "c0", "write", '{"te')], "length"),
    "stopped": ([{"content": "x EN"}, {"content": "D"}], "stop"),
}
FAULTS = [value for value in vars(errors).values() if isinstance(value, Fault)]
every = pytest.mark.parametrize("name", CHOICES)


def asked(dialect: Dialect, *, streamed: bool) -> Asked:
    own: dict[str, Any] = ({"input": "hi", "metadata": {"a": "b"}, "tools": [
        {"type": "function", "name": "write", "parameters": {"type": "object"}, "strict": False}], "text": {
            "format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}} if dialect is RESPONSES else
        {"max_tokens": 9, "stop_sequences": ["END"], "messages": [{"role": "user", "content": "hi"}]})
    return dialect.read(json.dumps({"model": "m", "stream": streamed, **own}).encode(), {}, REQUEST_ID)


def events(dialect: Dialect, name: str) -> list[dict[str, Any]]:
    """What is told of a stream, without its keep-alives."""
    deltas, finish_reason = CHOICES[name]
    voice = asked(dialect, streamed=True).voice
    assert voice is not None
    said = b"".join(told(voice(), stream(*map(chunk, deltas), chunk({}, finish_reason))))
    return list(payloads(said.split(b"\n\n")))


def payloads(said: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for one in said:
        _, found, data = one.partition(b"\ndata: ")
        if found and one != b'event: ping\ndata: {"type":"ping"}':
            yield json.loads(data)


def whole(dialect: Dialect, name: str, **choice: object) -> dict[str, Any]:
    """What is told of one answer that says the same as the stream."""
    deltas, finish_reason = CHOICES[name]
    message: dict[str, Any] = {}
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        for key in "content", "reasoning_content", "reasoning":
            if delta.get(key):
                message[key] = message.get(key, "") + delta[key]
        for piece in delta.get("tool_calls", ()):
            one = calls.setdefault(piece["index"], {**piece, "type": "function", "function": {"arguments": ""}})
            one["function"] = {**piece["function"], **one["function"],
                               "arguments": one["function"]["arguments"] + piece["function"].get("arguments", "")}
    if calls:
        message["tool_calls"] = list(calls.values())
    tell = asked(dialect, streamed=False).answer
    assert tell is not None
    value: dict[str, Any] = json.loads(tell(answer(message, finish_reason, **choice)))
    return value


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def holds(kind: Any, value: object) -> Any:
    """The value as the client's type, which it fits without being bent."""
    return adapter(kind).validate_json(json.dumps(value), strict=True)


@pytest.mark.parametrize(("kind", "value"), [
    (Message, {"type": "message"}), (Response, {"object": "response"}), (RawMessageStreamEvent, {"type": "pong"}),
    (ResponseStreamEvent, {"type": "response.output_text.delta", "delta": "x"})])
def test_the_types_refuse_what_is_not_theirs(kind: Any, value: object) -> None:
    with pytest.raises(ValidationError):
        holds(kind, value)


@every
def test_each_event_of_a_message_is_one_of_anthropics(name: str) -> None:
    for event in events(MESSAGES, name):
        held = holds(RawMessageStreamEvent, event)
        assert isinstance(held, BaseModel)
        assert held.model_dump()["type"] == event["type"]


@every
def test_a_whole_message_is_anthropics(name: str) -> None:
    assert holds(Message, whole(MESSAGES, name)).stop_reason is not None


@every
def test_each_event_of_a_response_is_one_of_openais(name: str) -> None:
    for event in events(RESPONSES, name):
        held = holds(ResponseStreamEvent, event)
        assert isinstance(held, BaseModel)
        assert held.model_dump()["type"] == event["type"]


@every
def test_a_whole_response_is_openais(name: str) -> None:
    assert holds(Response, whole(RESPONSES, name)).status in ("completed", "incomplete")


@every
def test_a_streamed_response_ends_with_the_unary_one(name: str) -> None:
    assert events(RESPONSES, name)[-1]["response"] == whole(RESPONSES, name)


@every
def test_a_streamed_message_adds_up_to_the_unary_one(name: str) -> None:
    start, *middle, last, stop = events(MESSAGES, name)
    content: list[dict[str, Any]] = []
    arguments: dict[int, str] = {}
    for event in middle:
        if event["type"] == "content_block_start":
            assert event["index"] == len(content)
            content.append(event["content_block"])
        elif event["type"] == "content_block_delta":
            delta = {key: value for key, value in event["delta"].items() if key != "type"}
            for key, value in delta.items():
                if key == "partial_json":
                    arguments[event["index"]] = arguments.get(event["index"], "") + value
                else:
                    content[event["index"]][key] += value
    unary = whole(MESSAGES, name)
    for at, block in enumerate(unary["content"]):
        if block["type"] == "tool_use":
            text = arguments.get(at, "{}")
            assert block["input"] in ({"unparsed_arguments": text}, json.loads(text) if text.endswith("}") else None)
            content[at]["input"] = block["input"]
    assert {**start["message"], "content": content, **last["delta"], "usage": last["usage"]} == unary
    assert stop == {"type": "message_stop"}


def test_log_probabilities_are_openais() -> None:
    response = holds(Response, whole(RESPONSES, "text", logprobs={"content": [LOGPROB]}))
    assert response.output[0].content[0].logprobs[0].to_dict() == LOGPROB


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.code)
def test_each_error_of_ours_is_one_of_anthropics(fault: Fault) -> None:
    status, body = MESSAGES.refusal(Refusal(fault, "why", "field", metadata={"a": 1.0}), REQUEST_ID)
    told_of = json.loads(body)
    assert told_of["error"] == {"type": TYPES.get(status, "api_error"), "message": "why", "code": fault.code,
                                "param": "field", "metadata": {"a": 1.0}}
    assert (status == 529) is (fault is errors.CAPACITY_EXHAUSTED)
    assert status == 529 or status == fault.status
    if status not in (408, 409, 413, 504):  # the client knows these by their status
        holds(ErrorResponse, told_of)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.code)
def test_an_error_of_a_response_is_openais_and_the_same_as_chats(fault: Fault) -> None:
    refused = Refusal(fault, "why", "field")
    assert RESPONSES.refusal(refused, REQUEST_ID) == (fault.status, refused.body())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.code)
def test_a_broken_response_ends_with_an_event_of_openais(fault: Fault) -> None:
    voice = asked(RESPONSES, streamed=True).voice
    assert voice is not None
    said = b"".join(told(voice(), stream(chunk({"content": "half"}))[:-1], Refusal(fault, "why", "field")))
    last = list(payloads(said.split(b"\n\n")))[-1]
    held = holds(ResponseStreamEvent, last)
    assert held.type == "response.failed"
    assert held.response.error.message == "why"
    assert last["response"]["error"]["metadata"] == {"code": fault.code, "retryable": fault.retry}


def test_counts_are_the_clients() -> None:
    message = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
    counted = COUNT_TOKENS.read(message, {}, REQUEST_ID)
    assert counted.counts is not None
    assert holds(MessageTokensCount, json.loads(counted.counts(7))).input_tokens == 7
    counted = INPUT_TOKENS.read(b'{"model":"m","input":"x"}', {}, REQUEST_ID)
    assert counted.counts is not None
    assert holds(InputTokenCountResponse, json.loads(counted.counts(7))).input_tokens == 7
