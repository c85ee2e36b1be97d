"""What of chat the translated dialects send and read."""

import json

import pytest
from msgspec import Raw

from edge_api.dialects.base import Upstream
from edge_api.dialects.upstream_chat import (
    Chat,
    ImagePart,
    ImageUrl,
    Message,
    TextPart,
    asked_of,
    content_of,
    given,
    json_schema,
    read_answer,
    read_events,
)
from edge_api.hot.answer import BadAnswer
from tests.unit.edge_api.dialects.small_edge import COSTED, LAST, chunk, event


def test_what_is_unset_is_not_sent() -> None:
    chat = Chat(model="m", messages=[Message("user", "x"), Message("assistant", None)])
    assert json.loads(asked_of(chat).body) == {
        "model": "m", "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": None}]}


def test_a_unary_request_asks_for_no_usage_in_events() -> None:
    asked = asked_of(Chat(model="m", messages=[Message("user", "x")]))
    assert (asked.upstream, asked.streamed, asked.wants_usage, asked.wants_each_usage) == (
        Upstream.CHAT, False, True, False)


def test_a_schema_is_kept_byte_for_byte() -> None:
    schema = b'{"enum": [1.0, "\\u003c"]}'
    chat = Chat(model="m", messages=[Message("user", "x")], response_format=json_schema(Raw(schema)))
    assert schema in asked_of(chat).body


def test_a_null_says_nothing() -> None:
    assert not given(None)
    assert given(0) == 0


def test_texts_are_one_string_and_images_keep_them_apart() -> None:
    image = ImagePart(ImageUrl("data:,"))
    assert content_of([]) == ""
    assert content_of([TextPart("a"), TextPart("b")]) == "a\nb"
    assert content_of([TextPart("a"), image]) == [TextPart("a"), image]


def test_events_are_read_in_order_and_comments_passed_over() -> None:
    data = b": keep-alive\n\n" + event(chunk({"content": "a"})) + b"event: x\n\n" + event(LAST)
    first, last = read_events(data)
    assert first.choices[0].delta
    assert first.choices[0].delta.content == "a"
    assert last.choices == []


def test_data_over_several_lines_is_one_event() -> None:
    [read] = read_events(b'data: {"choices":\ndata: []}\n\n')
    assert read.choices == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"choices":{}}', b'{"choices":[{"delta":{"content":1}}]}',
                                  b"\xff", b"[" * 100_000])
def test_what_is_no_chat_is_a_bad_answer(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_answer(body)


def test_a_cost_keeps_its_digits() -> None:
    [read] = read_events(b'data: {"usage":{"prompt_tokens":1,"cost":0.100000000000000000001}}\n\n')
    assert read.usage
    assert read.usage.cost == Raw(b"0.100000000000000000001")


@pytest.mark.parametrize(("details", "cached"), [
    ({"cached_tokens": 3}, 3), ({"cached_tokens": None}, 0), (None, 0), ({"cached_tokens": 99}, 10),
    ({"cached_tokens": -1}, 0)])
def test_no_more_is_cached_than_was_asked(details: object, cached: int) -> None:
    usage = read_answer(json.dumps({"usage": {"prompt_tokens": 10, "prompt_tokens_details": details}}).encode()).usage
    assert usage
    assert usage.cached_tokens == cached
    assert usage.reasoning_tokens == 0


def test_reasoning_is_told() -> None:
    usage = read_answer(json.dumps({"usage": COSTED}).encode()).usage
    assert usage
    assert usage.reasoning_tokens == 120
