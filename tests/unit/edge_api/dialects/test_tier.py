"""The tier that answers tell: the one that served, to whoever asked for any."""

import json
from typing import Any
from uuid import UUID

import pytest

from edge_api.dialects.base import ChunkHead, Dialect
from edge_api.dialects.messages import MESSAGES
from edge_api.dialects.plain import CHAT, COMPLETIONS, DONE_EVENT, KEEP_ALIVE, PlainVoice
from edge_api.dialects.responses import RESPONSES
from edge_api.dialects.tier import TierVoice, tell_tier
from edge_api.errors import INTERNAL_ERROR, Refusal
from edge_api.hot.answer import BadAnswer
from tests.unit.edge_api.dialects.small_edge import USAGE, answer, chunk, stream

ID = UUID(int=1)
TIERS = ["auto", "default", "flex", "priority", "fast", "scale"]
TOLD = b'{"service_tier":"default",'


def asked_of(dialect: Dialect, **fields: Any) -> Any:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "input": "hi", **fields}
    wanted = {"chat": "messages", "completions": "prompt", "messages": "messages", "responses": "input"}[dialect.name]
    for name in {"messages", "prompt", "input"} - {wanted}:
        body.pop(name)
    return dialect.read(json.dumps(body).encode(), {}, ID)


def voice() -> TierVoice:
    return TierVoice(PlainVoice(CHAT._upstream))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("dialect", [CHAT, COMPLETIONS], ids=lambda one: one.name)
def test_whatever_tier_is_asked_for_the_one_that_served_is_told(dialect: Dialect, tier: str) -> None:
    asked = asked_of(dialect, service_tier=tier, stream=True)
    assert asked.answer(b'{"id":"a"}') == TOLD + b'"id":"a"}'
    assert asked.voice().tell(b'data: {"id":"a"}\n\n') == b"data: " + TOLD + b'"id":"a"}\n\n'


def test_who_did_not_ask_gets_the_bytes_as_they_are() -> None:
    asked = asked_of(CHAT, stream=True)
    assert (asked.voice, asked.answer) == (None, None)
    assert asked_of(CHAT, service_tier=None).answer is None


@pytest.mark.parametrize("tier", TIERS)
def test_a_response_never_claims_another_tier(tier: str) -> None:
    asked = asked_of(RESPONSES, service_tier=tier)
    assert json.loads(asked.answer(answer({"content": "hi"})))["service_tier"] == "default"
    told = asked_of(RESPONSES, service_tier=tier, stream=True).voice()
    whole = told.begin() + told.end(b"".join(stream(chunk({"content": "hi"}), chunk({}, "stop"))))
    responses = [json.loads(line[6:])["response"] for line in whole.split(b"\n")
                 if line.startswith(b"data: ") and b'"response"' in line]
    assert [one["service_tier"] for one in responses] == ["default"] * 3


@pytest.mark.parametrize("tier", ["auto", "standard_only"])
def test_a_message_was_served_by_the_standard_tier(tier: str) -> None:
    asked = asked_of(MESSAGES, service_tier=tier, max_tokens=5)
    assert json.loads(asked.answer(answer({"content": "hi"})))["usage"]["service_tier"] == "standard"


@pytest.mark.parametrize("said", [
    b'{"service_tier":null,"id":"a"}', b'{"id":"a","service_tier":"priority"}',
    b'{"id": "a", "service_tier" : "scale"}',
])
def test_what_an_engine_says_of_tiers_is_replaced(said: bytes) -> None:
    assert json.loads(tell_tier(said)) == {"id": "a", "service_tier": "default"}
    assert tell_tier(said).count(b"service_tier") == 1


def test_text_about_tiers_stays_text() -> None:
    body = answer({"content": 'say {"service_tier":"priority"} \n\ndata: {"x"'})
    told = json.loads(tell_tier(body))
    assert told.pop("service_tier") == "default"
    assert told == json.loads(body)


@pytest.mark.parametrize("body", [b"{}", b" {}", b"{ }"])
def test_an_answer_without_fields_gets_this_one(body: bytes) -> None:
    assert json.loads(tell_tier(body)) == {"service_tier": "default"}


@pytest.mark.parametrize("body", [b"[]", b"", b"{'service_tier'", b'{"service_tier": '])
def test_what_is_no_object_is_no_answer(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        tell_tier(body)


def test_every_chunk_of_a_stream_tells_it_and_the_last_one_too() -> None:
    events = stream(chunk({"content": "data: {"}), chunk({}, "stop"))
    told = voice().tell(b"".join(events[:-1])) + voice().end(events[-1])
    assert told.endswith(DONE_EVENT)
    chunks = [json.loads(line[6:]) for line in told.removesuffix(DONE_EVENT).split(b"\n\n") if line]
    assert [one.pop("service_tier") for one in chunks] == ["default"] * 3
    assert chunks == [json.loads(one[6:]) for one in events]
    assert chunks[-1]["usage"]["prompt_tokens"] == USAGE["prompt_tokens"]


@pytest.mark.parametrize("said", [
    b"", KEEP_ALIVE, b": a\n\n: b\n\n", b"event: x\n\n", b"data: [DONE]\n\n", b'data: {"service_tier": oh\n\n'])
def test_what_is_no_chunk_passes(said: bytes) -> None:
    assert voice().tell(said) == said


def test_a_chunk_in_several_lines_is_one_chunk() -> None:
    assert json.loads(voice().tell(b'data: {"id":\ndata: {"x": 1}}\n\n')[6:].replace(b"\ndata:", b"")) == {
        "service_tier": "default", "id": {"x": 1}}


def test_it_begins_waits_and_fails_as_the_other_voice_does() -> None:
    other, refused, head = PlainVoice(CHAT._upstream), Refusal(INTERNAL_ERROR, "no"), ChunkHead("a", 1, "m")
    assert (voice().begin(), voice().keep_alive) == (other.begin(), other.keep_alive)
    assert voice().fail(refused, head) == other.fail(refused, head)
    assert voice().end(b"") == DONE_EVENT
