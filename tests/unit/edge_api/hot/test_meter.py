"""What of an event is the client's, and what is counted, for every shape in which engines send them."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.contracts.usage import MeterSource
from edge_api.hot.meter import StreamMeter
from edge_api.hot.usage import NOTHING_DELIVERED, UNKNOWN
from tests.unit.edge_api.builders import PRICE

USAGE = {"prompt_tokens": 16, "completion_tokens": 1, "total_tokens": 17, "prompt_tokens_details": {"cached_tokens": 0}}
NVEXT = {"completion_token_ids": [1206]}
CHOICES = [{"index": 0, "delta": {"content": " the", "role": "assistant"}, "finish_reason": None, "logprobs": None}]
HEAD = {"id": "chatcmpl-1", "choices": CHOICES, "created": 5, "model": "m", "object": "chat.completion.chunk"}


def meter(*, wants_usage: bool = False, wants_each: bool = False) -> StreamMeter:
    return StreamMeter(PRICE, wants_usage, wants_each)


def event(value: Any, separators: tuple[str, str] = (",", ":")) -> bytes:
    return b"data: " + json.dumps(value, separators=separators, ensure_ascii=False).encode() + b"\n\n"


def parsed(data: bytes) -> Any:
    return json.loads(data.removeprefix(b"data:"))


def test_usage_and_ids_are_cut_and_counted() -> None:
    it = meter()
    assert it.pass_on(event({**HEAD, "usage": USAGE, "nvext": NVEXT})) == event(HEAD)
    assert it.journal.tokens == 1
    assert it.partial_counts().prompt == 16


def test_nothing_else_is_touched() -> None:
    raw = b'data: {"id":"x", "choices" : [ {"delta":{"content":"\\u00e9 "}} ],"usage":{"prompt_tokens":1}}\n\n'
    assert meter().pass_on(raw) == b'data: {"id":"x", "choices" : [ {"delta":{"content":"\\u00e9 "}} ]}\n\n'


IDS = [
    {**HEAD, "usage": USAGE, "nvext": NVEXT}, {**HEAD, "usage": USAGE}, HEAD, {**HEAD, "id": "another", "nvext": NVEXT},
    {"nvext": NVEXT, **HEAD}, {"object": "x", **HEAD}, {"choices": CHOICES}, {**HEAD, "choices": [], "usage": USAGE}]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_every_chunk_has_the_answers_own_id(separators: tuple[str, str]) -> None:
    it = StreamMeter(PRICE, True, True, name=b"gen_1")
    told = [it.pass_on(event(chunk, separators)) for chunk in (*IDS, *reversed(IDS))]
    assert {parsed(one)["id"] for one in told} == {"gen_1"}
    assert [parsed(one)["choices"] for one in told[:7]] == [CHOICES] * 7
    assert it.head().id == "gen_1"


def test_what_is_no_chunk_has_no_id() -> None:
    it = StreamMeter(PRICE, True, False, name=b"gen_1")
    for raw in (b": comment\n\n", b"data: no json\n\n", b"data: {no json}\n\n"):
        assert it.pass_on(raw) == raw
    assert it.pass_on(b"data: [DONE]\n\n") == b""


@pytest.mark.parametrize(("ids", "count"), [([], 0), ([5], 1), ([5, 6, 7], 3), (list(range(500)), 500)])
def test_ids_are_counted(ids: list[int], count: int) -> None:
    it = meter()
    it.pass_on(event({**HEAD, "usage": USAGE, "nvext": {"completion_token_ids": ids}}))
    assert it.journal.tokens == count


SHAPES: dict[str, bytes] = {
    "usage then nvext": event({**HEAD, "usage": USAGE, "nvext": NVEXT}),
    "nvext only": event({**HEAD, "nvext": NVEXT}),
    "nvext then usage": event({**HEAD, "nvext": NVEXT, "usage": USAGE}),
    "usage first": event({"usage": USAGE, **HEAD, "nvext": NVEXT}),
    "nvext first": event({"nvext": NVEXT, **HEAD, "usage": USAGE}),
    "spaces": event({**HEAD, "usage": USAGE, "nvext": NVEXT}, (", ", ": ")),
    "more in nvext": event({**HEAD, "usage": USAGE, "nvext": {**NVEXT, "timing": {"a": [1, {"b": 2}]}}}),
    "null usage": event({**HEAD, "usage": None, "nvext": NVEXT}),
    "deeper usage": event({**HEAD, "usage": {**USAGE, "x": {"y": {"z": 1}}}, "nvext": NVEXT}),
    "no space after data": b"data:" + event({**HEAD, "usage": USAGE, "nvext": NVEXT})[6:],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_leaks_the_engines_extras(shape: str) -> None:
    it = meter()
    assert parsed(it.pass_on(SHAPES[shape])) == HEAD
    assert it.journal.tokens == 1


@given(st.text(), st.dictionaries(st.text(), st.sampled_from([USAGE, NVEXT, None, 1, "x"]), max_size=3))
def test_what_the_model_says_is_never_taken_for_the_engines_extras(text: str, inner: dict[str, Any]) -> None:
    said = {**HEAD, "choices": [{"index": 0, "delta": {"content": text + ',"usage":{"prompt_tokens":1}}', "x": inner}}]}
    it = meter()
    assert parsed(it.pass_on(event({**said, "usage": USAGE, "nvext": NVEXT}))) == said
    assert it.journal.tokens == 1
    assert parsed(it.pass_on(event(said))) == said


JSON_PIECES = st.sampled_from([
    ',"usage":null', ',"usage":{"prompt_tokens":16}', ',"usage":[]', ',"usage" : {"prompt_tokens":16}',
    ',"usage":{"prompt_tokens":16,"prompt_tokens_details":{"cached_tokens":1}}', ',"x":{"y":1}', "}", "]}",
    ',"usage":{"prompt_tokens":16,"deep":{"er":{"est":1}}}', ',"usage":{"a":"}{"}', ',"x":{"usage":{"a":1}',
    ',"text":"\\"usage\\":{"', ',"nvext":{"completion_token_ids":[5]}', ',"nvext":{"completion_token_ids":[]}',
    ',"nvext":{"completion_token_ids":[5,6],"a":1}', ',"nvext":{"completion_token_ids":["5"]}', ',"nvext":null'])


@given(st.lists(JSON_PIECES, max_size=4), st.booleans())
@settings(max_examples=1_000)
def test_the_short_way_through_the_meter_is_the_long_one(pieces: list[str], wants_each: bool) -> None:
    whole = b'data: {"id":"x","choices":[{"delta":{"content":"a"}}]' + "".join(pieces).encode() + b"}\n\n"
    short, long = meter(wants_each=wants_each), meter(wants_each=wants_each)
    assert short.pass_on(whole) == long._matched(whole)
    assert (short.usage, short.journal.log, short.is_over) == (long.usage, long.journal.log, long.is_over)


def test_a_nested_usage_at_the_end_is_not_cut() -> None:
    nested = {"id": "x", "choices": [{"delta": {}, "usage": {"prompt_tokens": 9}}]}
    it = meter()
    assert parsed(it.pass_on(event(nested))) == nested
    assert it.partial_counts() == UNKNOWN


def test_who_asked_for_continuous_usage_keeps_it() -> None:
    it = meter(wants_each=True)
    for shape in ("usage then nvext", "nvext then usage", "spaces"):
        assert parsed(it.pass_on(SHAPES[shape])) == {**HEAD, "usage": USAGE}


FINAL = event({**HEAD, "choices": [], "usage": {**USAGE, "completion_tokens": 3}})
FINAL_SHAPES = {
    "at the end": FINAL,
    "first": event({"usage": {**USAGE, "completion_tokens": 3}, **HEAD, "choices": []}),
    "spaces": event({**HEAD, "choices": [], "usage": {**USAGE, "completion_tokens": 3}}, (", ", ": ")),
}


@pytest.mark.parametrize("shape", FINAL_SHAPES)
def test_the_final_usage_is_kept_and_only_shown_to_who_asked(shape: str) -> None:
    silent, asked = meter(), meter(wants_usage=True)
    assert silent.pass_on(FINAL_SHAPES[shape]) == b""
    assert silent.complete_counts().completion == 3
    shown = parsed(asked.pass_on(FINAL_SHAPES[shape]))
    assert shown["usage"]["cost"] == 0.0000162
    assert asked.closing_usage() == b""


def test_a_closing_usage_is_written_for_who_asked_and_got_none() -> None:
    it = meter(wants_usage=True)
    it.pass_on(SHAPES["usage then nvext"])
    written = parsed(it.closing_usage())
    assert (written["id"], written["choices"], written["usage"]["completion_tokens"]) == ("chatcmpl-1", [], 1)
    assert it.closing_usage() == b""


def test_the_engines_count_wins_for_a_whole_stream() -> None:
    it = meter()
    it.pass_on(SHAPES["usage then nvext"])
    it.pass_on(FINAL)
    counts = it.complete_counts()
    assert (counts.completion, counts.meter) == (3, MeterSource.ENGINE)


def test_our_own_count_wins_for_a_broken_one() -> None:
    it = meter()
    it.pass_on(event({**HEAD, "usage": {**USAGE, "completion_tokens": 9}, "nvext": {"completion_token_ids": [1, 2]}}))
    counts = it.partial_counts()
    assert (counts.completion, counts.meter) == (2, MeterSource.TOKEN_IDS)


def test_a_broken_stream_without_output_costs_nothing() -> None:
    it = meter()
    it.pass_on(event({**HEAD, "usage": {**USAGE, "completion_tokens": 0}, "nvext": {"completion_token_ids": []}}))
    assert it.lost_counts() == NOTHING_DELIVERED


def test_a_stream_without_any_usage_is_left_to_the_witness() -> None:
    it = meter()
    it.pass_on(event(HEAD))
    assert it.complete_counts().meter is MeterSource.PROVISIONAL
    assert it.partial_counts() == UNKNOWN


@pytest.mark.parametrize("data", [b"data: [DONE]\n\n", b"data:[DONE]\n\n"])
def test_done_ends_the_stream(data: bytes) -> None:
    it = meter()
    assert it.pass_on(data) == b""
    assert it.is_over


@pytest.mark.parametrize(("data", "code"), [
    (event({"error": {"message": "m", "type": "t", "code": 503}}), 503),
    (event({"id": "x", "error": {"message": "m", "code": "overloaded"}}), "overloaded"),
    (event({"error": "plain words"}), None),
    (event({"error": ["odd"]}), None),
    (b'event: error\ndata: {"message":"m","code":503}\n\n', 503),
    (b"event: error\n: \"only a comment\"\n\n", None),
])
def test_an_error_inside_a_stream_is_seen(data: bytes, code: object) -> None:
    it = meter()
    assert it.pass_on(data) == b""
    assert it.error is not None
    assert it.error.code == code


def test_a_null_error_is_none() -> None:
    it = meter()
    assert it.pass_on(event({**HEAD, "error": None}))
    assert it.error is None


def test_the_word_error_in_the_text_is_no_error() -> None:
    said = {**HEAD, "choices": [{"index": 0, "delta": {"content": '{"error": {"code": 1}}', "error": 1}}]}
    it = meter()
    assert parsed(it.pass_on(event(said))) == said
    assert it.error is None


def test_comments_pass_and_engine_annotations_do_not() -> None:
    it = meter()
    assert it.pass_on(b": keep-alive\n\n") == b": keep-alive\n\n"
    assert it.pass_on(b'event: token_ids\n: "[1,2]"\n\n') == b""
    assert not it.has_begun


def test_data_that_is_no_json_passes_as_it_is() -> None:
    assert meter().pass_on(b'data: {"usage" oops\n\n') == b'data: {"usage" oops\n\n'


def test_the_finish_reason_is_the_last_chunks() -> None:
    it = meter()
    assert it.finish_reason() == ""
    it.pass_on(event({**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": USAGE,
                      "nvext": NVEXT}))
    it.pass_on(FINAL)
    assert it.finish_reason() == "tool_calls"
