"""One client's stream, from the moment that a datacenter accepted its request to its last byte.

Its events may come from several datacenters in turn: `attach` gives it the next one's connection. Events in, what of
them is the client's out, one write a read. The head goes out when the request is accepted; while the engine is silent,
and between two datacenters, the client gets keep-alives. The usage record is written before the last bytes are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from edge_api.dialects.base import StreamVoice
from edge_api.dialects.plain import PlainVoice
from edge_api.errors import Refusal
from edge_api.hot import respond
from edge_api.hot.failure import Failure, FailureKind, judge_stream_error
from edge_api.hot.meter import StreamMeter
from edge_api.hot.sse import EventSplitter, EventTooLong, is_whole
from edge_api.upstream.connection import Headers, UpstreamConnection

LINE_END = 0x0A
LOOK_S = 4.0  # a client waits for a byte twice that at most: less than the 10 s that are promised


class StreamOwner(Protocol):
    """Who began the stream and settles it."""

    write: Callable[[bytes], None]

    def first_event(self) -> None:
        """The first event is about to be written."""
        ...

    def stream_completed(self, meter: StreamMeter) -> None:
        """Journals the usage; the stream's last bytes are written after it."""
        ...

    def stream_broken(self, broken: Failure | Refusal) -> None:
        """The datacenter is of no more use to this stream. Either `attach` or `fail` follows, now or later."""
        ...

    def stream_written(self) -> None:
        """The last byte was written."""
        ...


class StreamRelay:
    """The sink of one stream's events. `is_paused` is set while the client does not take what is written."""

    __slots__ = ("_chunked", "_connection", "_has_event", "_is_flowing", "_is_over", "_is_quiet", "_loop",
                 "_max_event_bytes", "_owner", "_pass_on", "_patience_s", "_quiet_s", "_splitter", "_tell", "_timer",
                 "_voice", "_write", "is_paused", "meter", "rewrite")

    def __init__(self, owner: StreamOwner, meter: StreamMeter, voice: StreamVoice, chunked: bool,
                 first_event_s: float, idle_timeout_s: float, max_event_bytes: int) -> None:
        self._owner, self.meter, self._voice, self._chunked = owner, meter, voice, chunked
        self._patience_s = (idle_timeout_s, first_event_s)
        self._max_event_bytes = max_event_bytes
        self._splitter = EventSplitter(max_event_bytes)
        self._write, self._pass_on = owner.write, meter.pass_on
        self._tell = None if isinstance(voice, PlainVoice) else voice.tell
        self._has_event = self._is_over = self._is_quiet = self._is_flowing = self.is_paused = False
        self._quiet_s = 0.0
        self._connection: UpstreamConnection | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.rewrite: Callable[[bytes], bytes] | None = None
        """Puts the events of a continuation in line with those that the client has; none for the first datacenter."""

    def begin(self, head: bytes) -> None:
        """Writes the answer's head."""
        self._write(head + self._framed(self._voice.begin()))
        self._timer = self._loop.call_later(self._look_s(), self._watch)

    def attach(self, connection: UpstreamConnection) -> None:
        """The stream's events come from this connection now."""
        self._connection = connection
        connection.sink = self
        self._splitter = EventSplitter(self._max_event_bytes)
        self._is_quiet, self._quiet_s = False, 0.0
        if self.is_paused:
            connection.pause()

    def detach(self) -> None:
        """Leaves its datacenter, which has not ended the stream; `attach` follows."""
        self._leave_connection()

    @property
    def has_event(self) -> bool:
        """Whether the client has an event of the stream."""
        return self._has_event

    # the datacenter's side

    def on_head(self, status: int, headers: Headers) -> None:
        """The head came before this sink was put in place."""

    def on_body(self, data: bytes) -> None:
        if self._is_over:
            return
        self._is_quiet = False
        if (data.find(b"\n") == len(data) - 2 and data[-1] == LINE_END and self.rewrite is None
                and not self._splitter.held):
            out = self._pass_on(data)  # exactly one event: what a datacenter that does not coalesce sends
            if out and self._is_flowing:
                self._write(b"%x\r\n%b\r\n" % (len(out), out))
                return
        else:
            out = self._pass_on_all(data)
        if self.meter.is_over:
            self._close(out)
        elif out:
            self._deliver(out)

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
        self._leave_connection()

    def pause(self) -> None:
        """The client's connection is full."""
        self.is_paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        self.is_paused = False
        if self._connection is not None:
            self._connection.resume()

    def fail(self, refused: Refusal) -> None:
        """Ends the stream with one honest error, and without what ends a whole one."""
        self.stop()
        self._write(self._framed(self._voice.fail(refused, self.meter.head()), is_last=True))
        self._owner.stream_written()

    def _pass_on_all(self, data: bytes) -> bytes:
        meter, rewrite, out = self.meter, self.rewrite, []
        try:
            for event in self._splitter.feed(data):
                out.append(meter.pass_on(event if rewrite is None else rewrite(event)))
                if meter.is_over:
                    break
        except EventTooLong:
            meter.fail("an event of the stream is too long")
        return b"".join(out)

    def _deliver(self, out: bytes) -> None:
        if not self._has_event and self.meter.has_begun:
            self._has_event = True
            self._owner.first_event()
            self._is_flowing = self._chunked and self._tell is None
        if self._tell is not None:
            out = self._tell(out)
        if out:
            self._write(b"%x\r\n%b\r\n" % (len(out), out) if self._chunked else out)

    def _ended(self) -> None:
        self._connection = None
        if self._is_over:
            return
        rest = self._splitter.rest()
        out = self._pass_on_all(rest) if is_whole(rest) else b""
        if self.meter.error is None and not self.meter.finish_reason():
            self.meter.fail("upstream datacenter lost")
        self._close(out)

    def _close(self, out: bytes) -> None:
        """The datacenter's last event is in: the stream ends whole, or somebody else has to go on with it."""
        meter = self.meter
        if meter.error is None and meter.has_begun:
            self._complete(out)
            return
        if out:
            self._deliver(out)
        self._leave_connection()
        error = None if meter.is_cut else meter.error
        self._owner.stream_broken(
            judge_stream_error(error.code, error.message) if error else Failure(FailureKind.LOST, 200))

    def _complete(self, out: bytes) -> None:
        if not self._has_event:
            self._has_event = True
            self._owner.first_event()
        self._is_over = True
        out = self._voice.end(out + self.meter.closing_usage())
        self._owner.stream_completed(self.meter)
        self._write(self._framed(out, is_last=True))
        if self._connection is not None:
            self._connection.resume()  # what is left is the end of its body; then the pool has it back
        self._owner.stream_written()

    def _framed(self, out: bytes, is_last: bool = False) -> bytes:
        if not self._chunked:
            return out
        return (respond.chunk(out) if out else b"") + (respond.LAST_CHUNK if is_last else b"")

    def _watch(self) -> None:
        """Comes by now and then: tells a waiting client that it is not forgotten, and ends what is silent for too long.
        """
        if self._is_over:
            self._leave_connection()  # the datacenter said that it is done, and does not end its body
            return
        self._timer = self._loop.call_later(self._look_s(), self._watch)
        if self.is_paused:
            return  # the client is what stands still
        if not self._is_quiet:
            self._is_quiet, self._quiet_s = True, 0.0
            return
        self._quiet_s += self._look_s()
        if self._connection is not None and self._quiet_s >= self._patience_s[not self._has_event]:
            self._leave_connection()
            self._owner.stream_broken(Failure(FailureKind.SLOW, 200))
        else:
            self._write(self._framed(self._voice.keep_alive))

    def _look_s(self) -> float:
        return min(LOOK_S, self._patience_s[not self._has_event] / 4)

    def _leave_connection(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.abandon(self)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
