"""Whatever a datacenter says, a voice tells whole events and never breaks."""

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_api.dialects.base import ChunkHead, StreamVoice
from edge_api.dialects.messages import MESSAGES
from edge_api.dialects.responses import RESPONSES
from edge_api.errors import UPSTREAM_UNAVAILABLE, Refusal
from edge_api.hot.answer import BadAnswer
from tests.unit.edge_api.dialects.small_edge import LAST, REQUEST_ID, call, chunk, event, told

MESSAGE = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"stop_sequences":["</s>"]%b}'
RESPONSE = b'{"model":"m","input":"x"%b}'
Making = Callable[[], StreamVoice]


def messages_voice() -> StreamVoice:
    made = MESSAGES.read(MESSAGE % b',"stream":true', {}, REQUEST_ID).voice
    assert made is not None
    return made()


def responses_voice() -> StreamVoice:
    made = RESPONSES.read(RESPONSE % b',"stream":true', {}, REQUEST_ID).voice
    assert made is not None
    return made()


both = pytest.mark.parametrize("making", [messages_voice, responses_voice])


def said(data: bytes) -> list[dict[str, Any]]:
    """The events that a client sees; each is whole, named and JSON."""
    seen = []
    for each in data.split(b"\n\n")[:-1]:
        if not each.startswith(b":"):
            name, _, body = each.partition(b"\n")
            value = json.loads(body.removeprefix(b"data: "))
            assert name == b"event: " + value["type"].encode()
            seen.append(value)
    assert data.endswith(b"\n\n")
    return seen


NAMES = ["choices", "delta", "content", "reasoning_content", "tool_calls", "function", "arguments", "name", "id",
         "index", "usage", "prompt_tokens", "finish_reason", "logprobs"]
WILD = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12)


@both
@given(pieces=st.lists(st.binary(max_size=30) | WILD.map(lambda value: event(value)), max_size=4))
def test_no_words_break_a_voice(making: Making, pieces: list[bytes]) -> None:
    last = said(b"".join(told(making(), [*pieces, event(LAST)])))[-1]
    assert last["type"] in ("message_stop", "error", "response.completed", "response.incomplete", "response.failed")


@given(st.binary(max_size=40) | WILD.map(lambda value: json.dumps(value).encode()))
def test_no_answer_breaks_more_than_itself(body: bytes) -> None:
    for asked in MESSAGES.read(MESSAGE % b"", {}, REQUEST_ID), RESPONSES.read(RESPONSE % b"", {}, REQUEST_ID):
        assert asked.answer is not None
        with suppress(BadAnswer):
            json.loads(asked.answer(body))


CHUNKS = [chunk({"role": "assistant", "content": ""}), chunk({"reasoning_content": "hm 🗼"}), chunk({"content": "a</"}),
          chunk({"content": "b>"}), chunk(call(0, "c", "f", '{"a":')), chunk(call(0, arguments='"<&>"}')),
          chunk({}, "tool_calls"), LAST]


@both
@given(st.sets(st.integers(1, len(CHUNKS) - 1)))
def test_events_may_come_several_at_once(making: Making, cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(CHUNKS)]
    grouped = [b"".join(map(event, CHUNKS[start:end])) for start, end in pairwise(places)]
    alone = [event(each) for each in CHUNKS]
    voice, other = making(), making()
    assert (voice.begin() + b"".join(map(voice.tell, grouped[:-1])) + voice.end(grouped[-1])
            == other.begin() + b"".join(map(other.tell, alone)) + other.end(b""))


@both
def test_comments_and_crlf_less_events_without_a_space_are_read(making: Making) -> None:
    voice, other = making(), making()
    event_ = event(chunk({"content": "x"}))
    assert voice.tell(b": keep-alive\n\n" + event_.replace(b"data: ", b"data:")) == other.tell(event_)


@both
def test_nothing_follows_a_failure_and_no_done_is_said(making: Making) -> None:
    voice = making()
    data = voice.begin() + voice.tell(event(chunk({"content": "x"}))) + voice.fail(
        Refusal(UPSTREAM_UNAVAILABLE, "lost"), ChunkHead())
    assert said(data)[-1]["type"] in ("error", "response.failed")
    assert b"[DONE]" not in data


@both
def test_a_keep_alive_is_whole(making: Making) -> None:
    assert making().keep_alive.endswith(b"\n\n")
