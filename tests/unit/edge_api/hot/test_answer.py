"""A unary answer in its client's form: the cost in, the engine's extras out, everything else as it came."""

import json
from typing import Any

import pytest

from control_plane.contracts.pricing import Price
from control_plane.contracts.usage import MeterSource
from edge_api.hot.answer import BadAnswer, read_answer
from edge_api.hot.usage import UNKNOWN
from edge_api.tool_calls.verdict import Called
from tests.unit.edge_api.builders import PRICE

USAGE = {"prompt_tokens": 146012, "completion_tokens": 412, "total_tokens": 146424,
         "prompt_tokens_details": {"cached_tokens": 139776}, "completion_tokens_details": {"reasoning_tokens": 120}}
CHOICES = [{"index": 0, "message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop"}]
HEAD = {"id": "x", "object": "chat.completion", "choices": CHOICES}


def raw(value: Any, separators: tuple[str, str] = (",", ":")) -> bytes:
    return json.dumps(value, separators=separators, ensure_ascii=False).encode()


SHAPES = {
    "usage last": raw({**HEAD, "usage": USAGE}),
    "usage, then nvext": raw({**HEAD, "usage": USAGE, "nvext": {"completion_token_ids": [1, 2]}}),
    "spaces": raw({**HEAD, "usage": USAGE}, (", ", ": ")),
    "usage first": raw({"usage": USAGE, **HEAD}),
    "nvext first": raw({"nvext": {"a": 1}, "usage": USAGE, **HEAD}),
    "deep nvext": raw({**HEAD, "usage": USAGE, "nvext": {"timing": {"a": {"b": {"c": 1}}}}}),
    "a newline at the end": raw({**HEAD, "usage": USAGE}) + b"\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_priced_exactly(shape: str) -> None:
    answer = read_answer(SHAPES[shape], PRICE)
    shown = json.loads(answer.body, parse_float=str)
    assert shown["usage"]["cost"] == "0.02002336"
    assert shown["usage"]["cost_details"] == {
        "input": "0.0037416", "input_cached": "0.01537536", "output": "0.0009064", "currency": "USD",
        "price_version": "pv_1", "multiplier": "1"}
    assert {key: value for key, value in shown.items() if key != "usage"} == HEAD


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_counted(shape: str) -> None:
    answer = read_answer(SHAPES[shape], PRICE)
    counts = answer.counts
    assert (counts.prompt, counts.cached, counts.completion, counts.reasoning) == (146012, 139776, 412, 120)
    assert (counts.meter, answer.finish_reason) == (MeterSource.ENGINE, "stop")


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_has_the_answers_own_id(shape: str) -> None:
    shown = json.loads(read_answer(SHAPES[shape], PRICE, b"gen_1").body)
    assert {key: value for key, value in shown.items() if key != "usage"} == {**HEAD, "id": "gen_1"}


def test_an_answer_without_an_id_gets_none() -> None:
    vectors = {"object": "list", "data": [], "usage": {"prompt_tokens": 3}}
    assert "id" not in json.loads(read_answer(raw(vectors), PRICE, b"gen_1").body)


def test_words_that_look_like_usage_are_words() -> None:
    value = {**HEAD, "choices": [{"message": {"content": ',"usage":{"prompt_tokens":1}}'}}], "usage": USAGE}
    answer = read_answer(raw(value), PRICE)
    assert json.loads(answer.body)["choices"] == value["choices"]
    assert answer.counts.prompt == 146012


@pytest.mark.parametrize("usage", [None, "x", {"total_tokens": 5}, {"prompt_tokens": "9"}, []])
def test_usage_that_is_none_is_left_to_the_witness(usage: Any) -> None:
    answer = read_answer(raw({**HEAD, "usage": usage}), PRICE)
    assert (answer.counts, answer.cost) == (UNKNOWN, None)
    assert json.loads(answer.body)["choices"] == CHOICES


@pytest.mark.parametrize("body", [b"", b"[]", b"oops", raw(HEAD)[:40], b"<html>", raw({**HEAD, "usage": USAGE})[1:]])
def test_what_is_no_object_is_no_answer(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_answer(body, PRICE)


@pytest.mark.parametrize(("usage", "expected"), [
    ({"prompt_tokens": 5, "completion_tokens": -1}, (5, 0, 0)),
    ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}, (5, 5, 1)),
    ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": None}, (5, 0, 1)),
    ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": None}}, (5, 0, 1)),
])
def test_impossible_counts_are_made_possible(usage: Any, expected: tuple[int, int, int]) -> None:
    counts = read_answer(raw({**HEAD, "usage": usage}), PRICE).counts
    assert (counts.prompt, counts.cached, counts.completion) == expected


def test_an_empty_usage_object_is_not_torn() -> None:
    price = Price(version="pv_0", input_usd=0, cached_input_usd=0, output_usd=0)  # type: ignore[arg-type]
    answer = read_answer(raw({**HEAD, "usage": {}}), price)
    assert json.loads(answer.body)["usage"] == {}


def calling(*tool_calls: Any, finish: str = "tool_calls") -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "tool_calls": list(tool_calls)}
    return {"index": 0, "message": message, "finish_reason": finish}


CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": "<&>"}'}}


@pytest.mark.parametrize("shape", [{**HEAD, "usage": USAGE}, {"usage": USAGE, **HEAD}, HEAD],
                         ids=["usual", "odd", "no usage"])
def test_an_answer_that_ended_with_calls_tells_them(shape: dict[str, Any]) -> None:
    other = {"function": {"name": "g", "arguments": None}}
    answer = read_answer(raw({**shape, "choices": [calling(CALL, other), calling(CALL)]}), PRICE)
    assert answer.finish_reason == "tool_calls"
    assert list(answer.calls) == [Called("f", '{"a": "<&>"}'), Called("g", ""), Called("f", '{"a": "<&>"}')]


@pytest.mark.parametrize("choice", [calling(CALL, finish="length"), calling(finish="tool_calls"), CHOICES[0]])
def test_other_answers_have_none(choice: dict[str, Any]) -> None:
    assert list(read_answer(raw({**HEAD, "choices": [choice], "usage": USAGE}), PRICE).calls) == []


@pytest.mark.parametrize("call", [
    3, {"function": 3}, {"function": {"name": 1}}, {"function": {"name": "f", "arguments": {"a": 1}}}])
def test_calls_in_a_shape_that_nobody_reads_are_one_that_nobody_offered(call: Any) -> None:
    assert list(read_answer(raw({**HEAD, "choices": [calling(call)], "usage": USAGE}), PRICE).calls) == [Called("", "")]
