"""Events come out of a byte stream the same, however the stream was cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_api.hot.sse import EventSplitter, EventTooLong, event_name, is_whole, payload

STREAM = "data: {\"a\":\"漢字 🙂\"}\n\n: keep-alive\n\nevent: x\ndata: 1\ndata: 2\n\ndata: [DONE]\n\n".encode()
EVENTS = [event + b"\n\n" for event in STREAM.split(b"\n\n")[:-1]]


def fed(data: bytes, cuts: list[int]) -> list[bytes]:
    splitter, events, last = EventSplitter(1 << 20), [], 0
    for cut in [*sorted(cuts), len(data)]:
        events += splitter.feed(data[last:cut])
        last = cut
    return events


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_cuts_change_nothing(cuts: list[int]) -> None:
    assert fed(STREAM, cuts) == EVENTS


@given(st.lists(st.integers(0, 2 * len(STREAM)), max_size=12))
def test_crlf_and_cuts_change_nothing(cuts: list[int]) -> None:
    crlf = STREAM.replace(b"\n", b"\r\n")
    assert fed(crlf, [min(cut, len(crlf)) for cut in cuts]) == EVENTS


def test_cr_alone_ends_lines_as_well() -> None:
    splitter = EventSplitter(1 << 20)
    assert splitter.feed(b"data: 1\r\rdata: 2\r\rdata") == [b"data: 1\n\n", b"data: 2\n\n"]


def test_extra_blank_lines_are_no_events() -> None:
    assert EventSplitter(100).feed(b"\n\n\n\ndata: 1\n\n\n\n\ndata: 2\n\n") == [b"data: 1\n\n", b"data: 2\n\n"]


def test_an_event_past_the_bound_is_refused() -> None:
    splitter = EventSplitter(100)
    splitter.feed(b"data: " + b"x" * 90)
    with pytest.raises(EventTooLong):
        splitter.feed(b"x" * 20)


def test_many_small_pieces_of_one_event_are_joined_once() -> None:
    splitter = EventSplitter(1 << 20)
    for _ in range(10_000):
        assert splitter.feed(b"x" * 10) == []
    assert splitter.feed(b"\n\n") == [b"x" * 100_000 + b"\n\n"]


def test_the_rest_of_a_stream_is_its_unfinished_event() -> None:
    splitter = EventSplitter(100)
    splitter.feed(b"data: 1\n\ndata: [DONE]\r")
    assert splitter.rest() == b"data: [DONE]\n\n"
    assert splitter.rest() == b""
    assert not splitter.held


@pytest.mark.parametrize(("event", "data"), [
    (b"data: 1\n\n", b"1"), (b"data:1\n\n", b"1"), (b"data:  1\n\n", b" 1"), (b"data: 1\ndata: 2\n\n", b"1\n2"),
    (b"id: 7\ndata: 1\n\n", b"1"), (b": comment\n\n", b""), (b"data\n\n", b""),
])
def test_the_payload_is_the_data_lines_joined(event: bytes, data: bytes) -> None:
    assert payload(event) == data


def test_the_name_of_an_event() -> None:
    assert event_name(b"event: error\ndata: 1\n\n") == b"error"
    assert event_name(b"data: 1\n\n") == b""


@pytest.mark.parametrize(("event", "whole"), [
    (b'data: {"a":[1]}\n\n', True), (b"data: [DONE]\n\n", True), (b'data: {"a":"lo\n\n', False),
    (b'data: {"a\n\n', False), (b'data: {"a":1\n\n', False), (b"data: [DO\n\n", False), (b"da\n\n", False),
    (b": comment\n\n", False), (b"", False),
])
def test_an_event_without_its_end_is_whole_only_with_all_its_data(event: bytes, whole: bool) -> None:
    assert is_whole(event) is whole
