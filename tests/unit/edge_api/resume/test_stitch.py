"""The events of a continuation, as events of the stream that it continues."""

from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from edge_api.resume.journal import Call, Reasoning, Said, Seam
from edge_api.resume.stitch import BadContinuation, Stitch, closing, unheard
from tests.unit.edge_api.resume.events import THINKS, call, chat, completion

SEAM = Seam(ids=b"7,8,9", tokens=3, had_text=True, was_counted=True)
FIRST = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 8}}
NEW = {"prompt_tokens": 13, "completion_tokens": 5, "total_tokens": 18, "prompt_tokens_details": {"cached_tokens": 0}}


def stitch(seam: Seam = SEAM, usage: dict[str, Any] | None = None, schemas: dict[str, Any] | None = None) -> Stitch:
    return Stitch(chat([1], content="a"), json.encode(usage) if usage else b"", seam, schemas)


def parsed(event: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.decode(event.removeprefix(b"data: "))
    return value


def delta(event: bytes) -> dict[str, Any]:
    found: dict[str, Any] = parsed(event)["choices"][0]["delta"]
    return found


def test_the_answer_keeps_its_id() -> None:
    event = chat([2], content="b", answer_id="chatcmpl-other").replace(b'"created":5', b'"created":6')
    assert stitch().take(event) == chat([2], content="b")


def test_what_only_the_continuation_has_is_left_out() -> None:
    event = chat([2], content="b").replace(b'"created"', b'"system_fingerprint":"fp_b","created"')
    assert "system_fingerprint" not in parsed(stitch().take(event))


def test_a_fingerprint_stays_that_of_the_first() -> None:
    first = chat([1], content="a").replace(b'"created"', b'"system_fingerprint":"fp_a","created"')
    assert parsed(Stitch(first, b"", SEAM).take(chat([2], content="b")))["system_fingerprint"] == "fp_a"


def test_there_is_no_second_role() -> None:
    assert delta(stitch().take(chat([2], role="assistant", content="b"))) == {"content": "b"}


def test_an_event_with_nothing_but_a_role_is_dropped() -> None:
    assert stitch().take(chat(None, role="assistant", content="")) == b""


def test_ids_are_counted_even_without_text() -> None:
    assert parsed(stitch().take(chat([2], role="assistant")))["nvext"] == {"completion_token_ids": [2]}


def test_usage_and_ids_come_last_where_the_meter_looks_for_them() -> None:
    out = stitch(usage=FIRST).take(chat([2], content="b", usage=NEW))
    assert out.endswith(b'},"nvext":{"completion_token_ids":[2]}}\n\n')
    assert out.index(b',"usage":') > out.index(b'"choices"')


@pytest.mark.parametrize("event", [
    b": keep-alive\n\n", b"data: [DONE]\n\n", b'data: {"error":{"code":503}}\n\n', b'event: token_ids\n: "[1]"\n\n',
])
def test_what_is_no_chunk_passes(event: bytes) -> None:
    assert stitch().take(event) == event


@pytest.mark.parametrize("event", [
    b'data: {"choices":5}\n\n', b'data: {"choices":[{"delta":1}]}\n\n',
    b'data: {"choices":[],"usage":[]}\n\n',
])
def test_what_is_no_event_of_a_stream_is_refused(event: bytes) -> None:
    with pytest.raises(BadContinuation):
        stitch().take(event)


# usage


def whole_usage(seam: Seam, first: dict[str, Any] | None, new: dict[str, Any] = NEW) -> dict[str, Any]:
    found: dict[str, Any] = parsed(stitch(seam, first).take(chat(None, content="", finish="stop", usage=new)))["usage"]
    return found


def test_the_prompt_counts_once_and_the_answer_whole() -> None:
    assert whole_usage(SEAM, FIRST) == {
        "prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18, "prompt_tokens_details": {"cached_tokens": 8}}


def test_without_a_first_usage_the_prompt_is_what_was_not_delivered() -> None:
    usage = whole_usage(SEAM, None)
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]) == (10, None)


def reasoned(tokens: int, usage: dict[str, Any]) -> dict[str, Any]:
    return {**usage, "completion_tokens_details": {"reasoning_tokens": tokens}}


def test_reasoning_is_added_up() -> None:
    ended = replace(SEAM, reasoning=Reasoning.ENDED, reasoning_tokens=2)
    usage = whole_usage(ended, reasoned(1, FIRST), reasoned(0, NEW))
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 2}


def test_reasoning_that_was_given_up_does_not_count() -> None:
    ended = replace(SEAM, reasoning=Reasoning.ENDED, reasoning_tokens=3)
    usage = whole_usage(ended, reasoned(4, FIRST), reasoned(0, NEW))
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 3}


def test_a_thought_is_counted_by_its_ids_to_its_end() -> None:
    inside = replace(SEAM, reasoning=Reasoning.INSIDE, reasoning_tokens=3, is_thinking=True)
    it = Stitch(chat([1], reasoning_content="a"), json.encode(reasoned(4, FIRST)), inside, None, THINKS)
    counts = [parsed(it.take(chat(ids, usage=reasoned(0, NEW))))["usage"]["completion_tokens_details"]
              for ids in ([5], [6, 91], [7], [8])]
    assert [count["reasoning_tokens"] for count in counts] == [4, 6, 6, 6]


def test_reasoning_that_no_id_tells_of_is_what_the_engine_said() -> None:
    assert whole_usage(SEAM, reasoned(2, FIRST), reasoned(0, NEW))["completion_tokens_details"] == {
        "reasoning_tokens": 2}


def test_without_output_before_it_the_new_usage_is_the_usage() -> None:
    assert whole_usage(Seam(ids=b"", tokens=0), FIRST) == NEW


# tool calls


def test_calls_are_counted_on() -> None:
    event = chat([2], tool_calls=[call(0, "f", "{}", "call_x"), call(1, "g", "{}", "call_y")])
    calls = delta(stitch(replace(SEAM, calls=2)).take(event))["tool_calls"]
    assert [(one["index"], one["id"]) for one in calls] == [(2, "call_x"), (3, "call_y")]


@pytest.mark.parametrize(("calls", "reason"), [(0, "stop"), (1, "tool_calls")])
def test_an_answer_that_called_tools_ends_so(calls: int, reason: str) -> None:
    event = stitch(replace(SEAM, calls=calls)).take(chat([2], finish="stop"))
    assert parsed(event)["choices"][0]["finish_reason"] == reason


def test_an_answer_that_is_too_long_ends_so() -> None:
    event = stitch(replace(SEAM, calls=1)).take(chat([2], finish="length"))
    assert parsed(event)["choices"][0]["finish_reason"] == "length"


HALF = replace(SEAM, calls=1, half_call=Call(1, b"", "call_a", "f", '{"x": 1', 2))


def test_the_known_part_of_a_call_is_muted() -> None:
    it = stitch(HALF)
    assert "tool_calls" not in delta(it.take(chat([2], tool_calls=[call(0, "f", '{"x"', "call_b")])))
    assert delta(it.take(chat([3], tool_calls=[call(0, None, ": 12")])))["tool_calls"] == [
        {"index": 1, "function": {"arguments": "2"}}]


def test_a_whole_call_is_muted_as_far_as_it_is_known() -> None:
    calls = delta(stitch(HALF).take(chat([2], tool_calls=[call(0, "f", '{"x": 1}', "call_b"), call(1, "g", "{}")])))
    assert calls["tool_calls"] == [{"index": 1, "function": {"arguments": "}"}}, call(2, "g", "{}", "call_1")]


@pytest.mark.parametrize("piece", [call(0, "g", "{"), call(0, "f", '{"y"')])
def test_another_call_than_the_client_was_told_is_refused(piece: dict[str, Any]) -> None:
    with pytest.raises(BadContinuation):
        stitch(HALF).take(chat([2], tool_calls=[piece]))


def test_a_call_must_fit_its_schema_where_a_grammar_ruled_it() -> None:
    schemas = {"f": {"type": "object", "required": ["x"]}}
    assert stitch(schemas=schemas).take(chat([2], tool_calls=[call(0, "f", '{"x": 1}')]))
    with pytest.raises(BadContinuation):
        stitch(schemas=schemas).take(chat([2], tool_calls=[call(0, "f", "{}")]))


# repeated text


REPEAT = replace(SEAM, repeat=Said("the cat", "hm"))


def test_text_that_the_client_has_is_muted() -> None:
    it = stitch(REPEAT)
    assert delta(it.take(chat([2], reasoning_content="h"))) == {"reasoning_content": ""}
    assert delta(it.take(chat([3], reasoning_content="m!"))) == {"reasoning_content": "!"}
    assert delta(it.take(chat([4], content="the c"))) == {"content": ""}
    assert delta(it.take(chat([5], content="at sat"))) == {"content": " sat"}
    assert delta(it.take(chat([6], content="the cat"))) == {"content": "the cat"}


def test_text_of_a_completion_is_muted() -> None:
    it = Stitch(completion("a", [1]), b"", replace(SEAM, repeat=Said("the")))
    assert parsed(it.take(completion("the cat", [2])))["choices"][0]["text"] == " cat"


def test_other_text_than_the_client_has_is_refused() -> None:
    with pytest.raises(BadContinuation):
        stitch(REPEAT).take(chat([2], content="a cat"))


def test_an_end_before_the_clients_own_is_refused() -> None:
    with pytest.raises(BadContinuation):
        stitch(REPEAT).take(chat([2], content="the", finish="stop"))


def test_an_answer_at_its_limit_is_closed_by_the_edge() -> None:
    finish, usage, done, rest = closing(chat([1], content="a"), json.encode(FIRST), 3).split(b"\n\n")
    assert parsed(finish)["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]
    assert parsed(finish)["id"] == parsed(usage)["id"] == "chatcmpl-a"
    assert parsed(usage)["usage"] == {**FIRST, "completion_tokens": 3, "total_tokens": 13}
    assert (done, rest) == (b"data: [DONE]", b"")


def test_a_completion_at_its_limit_is_closed_as_one() -> None:
    finish, done, rest = closing(completion("a", [1]), b"", 1).split(b"\n\n")
    assert parsed(finish)["choices"] == [{"index": 0, "text": "", "finish_reason": "length"}]
    assert (done, rest) == (b"data: [DONE]", b"")


@pytest.mark.parametrize(("said", "heard", "new", "left"), [
    ("abc", "ab", "c", ""), ("a", "abc", "", "bc"), ("abc", "", "abc", ""), ("", "abc", "", "abc"), ("a", "a", "", ""),
])
def test_what_is_new_and_what_must_still_come(said: str, heard: str, new: str, left: str) -> None:
    assert unheard(said, heard) == (new, left)
