"""A stream on its way from a datacenter to a client: events in, what of them is the client's out, one write a read.

Nothing is written to the client before the datacenter's first event is there: until then another datacenter may still
answer, and a failure keeps its true status. The usage record is written before `[DONE]` is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from msgspec import json

from edge_api.hot import respond
from edge_api.hot.failure import Failure, FailureKind, judge_stream_error
from edge_api.hot.meter import StreamMeter
from edge_api.hot.sse import EventSplitter, EventTooLong
from edge_api.hot.usage import Counts
from edge_api.upstream.connection import Headers, UpstreamConnection

DONE_EVENT = b"data: [DONE]\n\n"


class StreamOwner(Protocol):
    """Who began the stream and settles it."""

    write: Callable[[bytes], None]

    def stream_started(self) -> bytes:
        """The head of the answer; the first byte goes out now."""
        ...

    def stream_completed(self, counts: Counts, finish_reason: str) -> None:
        """Journals the usage; the stream's last bytes are written after it."""
        ...

    def stream_lost(self, counts: Counts, kind: FailureKind) -> None:
        """As `stream_completed`, for a stream that the datacenter broke, or that merely fell silent."""
        ...

    def stream_written(self) -> None:
        """The last byte was written."""
        ...

    def attempt_failed(self, failure: Failure) -> None:
        """The stream broke before anything of it was answered."""
        ...


class StreamRelay:
    """The sink of one stream's events. `is_paused` is set while the client does not take what is written."""

    __slots__ = ("_chunked", "_connection", "_is_over", "_is_quiet", "_loop", "_owner", "_pass_on",
                 "_period_s", "_splitter", "_started", "_timer", "_write", "is_paused", "meter")

    def __init__(self, owner: StreamOwner, connection: UpstreamConnection, meter: StreamMeter, chunked: bool,
                 idle_timeout_s: float, max_event_bytes: int) -> None:
        self._owner, self._connection, self.meter, self._chunked = owner, connection, meter, chunked
        self._splitter = EventSplitter(max_event_bytes)
        self._write, self._pass_on = owner.write, meter.pass_on
        self._started = self._is_over = self._is_quiet = self.is_paused = False
        self._loop = asyncio.get_running_loop()
        self._period_s = idle_timeout_s
        self._timer: asyncio.TimerHandle | None = None

    # the datacenter's side

    def on_head(self, status: int, headers: Headers) -> None:
        """The head came before this sink was put in place."""

    def on_body(self, data: bytes) -> None:
        if self._is_over:
            return
        self._is_quiet = False
        if data.find(b"\n") == len(data) - 2 and data.endswith(b"\n\n") and not self._splitter.held:
            out = self._pass_on(data)  # exactly one event: what a datacenter that does not coalesce sends
        else:
            out = self._pass_on_all(data)
        if self.meter.is_over:
            self._close(out)
        elif out:
            if self._started:
                self._write(b"%x\r\n%b\r\n" % (len(out), out) if self._chunked else out)
            else:
                self._begin(out)

    def on_end(self) -> None:
        """The datacenter's answer is over, with or without `[DONE]`."""
        self._ended()

    def on_lost(self, reason: str, answered: bool) -> None:
        self._ended()

    # the client's side

    def stop(self) -> None:
        """Nobody wants the rest."""
        self._is_over = True
        self._cancel_timer()
        self._connection.abandon(self)

    @property
    def has_started(self) -> bool:
        """Whether the client has its first byte."""
        return self._started

    def _pass_on_all(self, data: bytes) -> bytes:
        meter, out = self.meter, []
        try:
            for event in self._splitter.feed(data):
                out.append(meter.pass_on(event))
                if meter.is_over:
                    break
        except EventTooLong:
            meter.fail("an event of the stream is too long")
        return b"".join(out)

    def _ended(self) -> None:
        self._cancel_timer()
        if self._is_over:
            return
        rest = self._splitter.rest()
        out = self.meter.pass_on(rest) if rest.startswith(b"data:") else b""
        if self.meter.error is None and not self.meter.finish_reason():
            self.meter.fail("upstream datacenter lost")
        self._close(out)

    def _close(self, out: bytes, kind: FailureKind = FailureKind.LOST) -> None:
        """The last event is in: the stream ends whole, or with one honest error, or is tried elsewhere."""
        meter = self.meter
        if not self._started and (meter.error is not None or not meter.has_begun):
            self._is_over = True
            self._cancel_timer()
            error = None if meter.is_cut else meter.error
            self._owner.attempt_failed(judge_stream_error(error.code) if error else Failure(FailureKind.BROKEN, 200))
        elif meter.error is not None:
            self._owner.stream_lost(meter.lost_counts(), kind)
            self._write_last(out + self._error_event())
            self.stop()
        else:
            head = b"" if self._started else self._start()
            last = meter.closing_usage()
            self._owner.stream_completed(meter.complete_counts(), meter.finish_reason())
            self._write_last(out + last + DONE_EVENT, head)

    def _begin(self, out: bytes) -> None:
        if not self.meter.has_begun:
            return  # comments before the first event commit the datacenter to nothing
        head = self._start()
        self._write(head + (respond.chunk(out) if self._chunked else out))

    def _start(self) -> bytes:
        self._started = True
        self._timer = self._loop.call_later(self._period_s, self._watch)
        return self._owner.stream_started()

    def _write_last(self, out: bytes, head: bytes = b"") -> None:
        self._is_over = True
        self._write(head + (respond.chunk(out) + respond.LAST_CHUNK if self._chunked else out))
        self._connection.resume()  # what is left is the end of the datacenter's body; then the pool has it back
        self._owner.stream_written()

    def _watch(self) -> None:
        """Comes by once a period: ends what has been silent for a whole one."""
        self._timer = None
        if self._is_over:
            self._connection.abandon(self)
        elif self._is_quiet and not self.is_paused:  # while it is paused the client is what stands still
            self.meter.fail("upstream datacenter fell silent")
            self._close(b"", FailureKind.SLOW)
        else:
            self._is_quiet = True
            self._timer = self._loop.call_later(self._period_s, self._watch)

    def _error_event(self) -> bytes:
        head = self.meter.head()
        return b"data: " + json.encode({
            "id": head.id, "object": "chat.completion.chunk", "created": head.created, "model": head.model,
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            "error": {"message": "the upstream datacenter was lost in the middle of the answer", "type": "server_error",
                      "param": None, "code": "upstream_unavailable",
                      "metadata": {"error_type": "provider_unavailable"}},
        }) + b"\n\n"

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
