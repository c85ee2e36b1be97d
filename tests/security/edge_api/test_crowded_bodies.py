"""Bodies within the bound whose reading would stop the edge for everybody else, or take its memory."""

import time
from collections.abc import Mapping

import pytest

from control_plane.contracts import ids
from edge_api.dialects.base import Asked
from edge_api.dialects.routes import HOT_ROUTES
from edge_api.errors import Refusal
from edge_api.hot.request import prepare
from edge_api.routing.table import build_table
from tests.unit.edge_api.builders import MODEL, snapshot

LONG_BYTES = 8 << 20
BLOCKED_S = 2.0  # about 0.1 s on a machine that does nothing else; whatever is let through took longer by far
CHAT, MESSAGES, RESPONSES = b"/v1/chat/completions", b"/v1/messages", b"/v1/responses"
ALONE = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"}],"%b":[%b]}'
CROWDS: Mapping[str, tuple[bytes, bytes, bytes]] = {
    "messages of chat that are none": (CHAT, b'{"model":"m","messages":[%b]}', b"1"),
    "tools of chat that are none": (CHAT, ALONE.replace(b'"max_tokens":1,', b"") % (b"tools", b"%b"), b"{}"),
    "messages": (MESSAGES, b'{"model":"m","max_tokens":1,"messages":[%b]}', b'{"role":"user","content":""}'),
    "blocks": (MESSAGES, b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[%b]}]}',
               b'{"type":"text","text":""}'),
    "results": (MESSAGES, b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[%b]}]}',
                b'{"type":"tool_result","tool_use_id":""}'),
    "parts of one result": (
        MESSAGES, b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result",'
                  b'"tool_use_id":"","content":[%b]}]}]}', b'{"type":"text","text":""}'),
    "tools": (MESSAGES, ALONE % (b"tools", b"%b"), b'{"name":"a","input_schema":{}}'),
    "stop strings": (MESSAGES, ALONE % (b"stop_sequences", b"%b"), b'"a"'),
    "items": (RESPONSES, b'{"model":"m","input":[%b]}', b'{"role":"user","content":""}'),
    "parts of an item": (RESPONSES, b'{"model":"m","input":[{"role":"user","content":[%b]}]}',
                         b'{"type":"input_text","text":""}'),
    "tools of responses": (RESPONSES, b'{"model":"m","input":"a","tools":[%b]}', b'{"type":"function","name":"a"}'),
}
SHORT = [name for name in CROWDS if "none" not in name]


def crowd(name: str, length: int) -> tuple[bytes, bytes]:
    """A path, and a body about so long."""
    path, around, unit = CROWDS[name]
    return path, around % b",".join([unit] * (length // (len(unit) + 1)))


def read(path: bytes, body: bytes) -> Asked:
    return HOT_ROUTES[path].read(body, {}, ids.uuid7())


@pytest.mark.parametrize("name", CROWDS)
def test_a_crowd_is_refused_before_it_stops_the_others(name: str) -> None:
    path, body = crowd(name, LONG_BYTES)
    started_s = time.monotonic()
    with pytest.raises(Refusal) as refused:
        read(path, body)
    assert refused.value.status in (400, 413)
    assert time.monotonic() - started_s < BLOCKED_S


@pytest.mark.parametrize("name", SHORT)
def test_a_crowd_of_what_is_translated_is_refused_in_a_short_body_too(name: str) -> None:
    path, body = crowd(name, 700_000)
    with pytest.raises(Refusal) as refused:
        read(path, body)
    assert refused.value.status == 400


@pytest.mark.parametrize("around", [b'"nvext":1,%b', b'"stream":true,"stream_options":{%b}'])
def test_an_object_that_is_taken_apart_has_few_fields(around: bytes) -> None:
    fields = b",".join(b'"k%d":1' % number for number in range(2_000))
    body = b'{"model":"%b","messages":[{"role":"user","content":"a"}],%b}' % (MODEL.encode(), around % fields)
    with pytest.raises(Refusal) as refused:
        prepare(read(CHAT, body), build_table(snapshot()).models[MODEL], False)
    assert refused.value.status == 400


@pytest.mark.parametrize("path", [b"/v1/completions", b"/v1/embeddings"])
def test_a_prompt_of_a_million_ids_is_no_crowd(path: bytes) -> None:
    field = b"prompt" if b"completions" in path else b"input"
    assert read(path, b'{"model":"m","%b":[%b1]}' % (field, b"1234," * 1_000_000)).fields.texts == 1


@pytest.mark.parametrize(("path", "body"), [
    (CHAT, b'{"model":"m","messages":[{"role":"user","content":"%b"}]}'),
    (MESSAGES, b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"%b"}]}'),
    (RESPONSES, b'{"model":"m","input":"%b"}'),
])
def test_a_long_text_is_no_crowd(path: bytes, body: bytes) -> None:
    text = b"as long as a book, or more of them, " * 100_000
    assert text in read(path, body % text).body


def test_a_long_conversation_is_no_crowd() -> None:
    turn = b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[%b]}]}' % (
        b'{"type":"text","text":"a"}')
    assert read(MESSAGES, b'{"model":"m","max_tokens":1,"messages":[%b]}' % b",".join([turn] * 3_000)).body
