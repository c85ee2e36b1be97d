"""Answers within their bounds that take an edge's time: from a datacenter that was taken over, or as a client had them
made."""

import time
from collections.abc import Callable

import pytest

from control_plane.contracts import ids
from edge_api.dialects.messages import MESSAGES
from edge_api.dialects.messages.stops import StopWatch
from edge_api.dialects.upstream_chat import Delta
from edge_api.errors import Refusal
from edge_api.hot.answer import BadAnswer, read_answer
from edge_api.hot.meter import StreamMeter
from edge_api.hot.sse import EventSplitter
from tests.unit.edge_api.builders import PRICE

LONG = 8 << 20
BLOCKED_S = 4.0  # each takes about 0.1 s, and took minutes or tens of seconds


def spent_s(work: Callable[[], object]) -> float:
    started_s = time.monotonic()
    work()
    return time.monotonic() - started_s


def test_lines_without_an_end_are_looked_at_once() -> None:
    splitter = EventSplitter(LONG)

    def feed() -> None:
        for _ in range(30_000):
            assert splitter.feed(b"a\n" * 100) == []

    assert spent_s(feed) < BLOCKED_S
    assert splitter.feed(b"\n") == [b"a\n" * 3_000_000 + b"\n"]


@pytest.mark.parametrize("pieces", [
    (b"data: a\n", b"\n"), (b"data: a", b"\n\n"), (b"data: a\n", b"\ndata: b"),
    (b"data: a\r", b"\ndata: b\r", b"\n\r\n"),
    (b"data: a\n\r", b"data: b"), (b"data: a\n", b"data: b\n", b"\n")])
def test_an_event_ends_where_two_reads_meet(pieces: tuple[bytes, ...]) -> None:
    splitter, whole = EventSplitter(LONG), EventSplitter(LONG)
    assert [event for piece in pieces for event in splitter.feed(piece)] == whole.feed(b"".join(pieces)) != []


@pytest.mark.parametrize("unit", [b"{}", b'"a":{},', b"a", b"{"])
@pytest.mark.parametrize("end", [b"}x}", b'},"nvext":{', b""])
def test_a_usage_that_is_none_is_not_searched_for_long(unit: bytes, end: bytes) -> None:
    usage = b'"usage":{' + unit * (LONG // len(unit)) + end

    def read() -> None:
        with pytest.raises(BadAnswer):
            read_answer(b'{"choices":[],' + usage, PRICE)

    assert spent_s(read) < BLOCKED_S
    meter = StreamMeter(PRICE, wants_usage=True, wants_each_usage=False)
    assert spent_s(lambda: meter.pass_on(b'data: {"choices":[{}],' + usage + b"\n\n")) < BLOCKED_S


def test_a_long_usage_is_read_all_the_same() -> None:
    usage = b'{"prompt_tokens":5,"completion_tokens":7,"more":{"x":"%b"}}' % (b"y" * 100_000)
    answer = read_answer(b'{"choices":[],"usage":%b}' % usage, PRICE)
    assert (answer.counts.prompt, answer.counts.completion) == (5, 7)
    meter = StreamMeter(PRICE, wants_usage=False, wants_each_usage=False)
    assert meter.pass_on(b'data: {"choices":[],"usage":%b}\n\n' % usage) == b""
    assert meter.complete_counts().completion == 7


def test_the_worst_stop_strings_cost_a_token_little() -> None:
    """As many and as long as are taken, and a model that says what one of them begins with."""
    watch = StopWatch(("a" * 500, *("b" * 16 for _ in range(31))))

    def tell() -> None:
        for _ in range(2_000):
            watch.take(Delta(content="aaaa"))

    assert spent_s(tell) < BLOCKED_S


@pytest.mark.parametrize("stops", [["x" * 1_001], ["x" * 501] * 2, ["x"] * 33])
def test_stop_strings_beyond_that_are_refused(stops: list[str]) -> None:
    body = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"}],"stop_sequences":%b}'
    with pytest.raises(Refusal) as refused:
        MESSAGES.read(body % str(stops).replace("'", '"').encode(), {}, ids.uuid7())
    assert refused.value.param == "stop_sequences"
