"""One keep-alive HTTP/1.1 connection to a datacenter's frontend: one request at a time, its answer given to a sink.

The event loop sets TCP_NODELAY on both legs (uvloop and asyncio do so by themselves; a test holds them to it).
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools

from edge_api.known_head import KnownHead, known_head

Headers = dict[bytes, bytes]
OK = 200
NO_BODY = (204, 304)
SMALL_BODY_BYTES = 16_384


class Sink(Protocol):
    """Who takes an answer. Exactly one of `on_end` and `on_lost` comes, and nothing after it."""

    def on_head(self, status: int, headers: Headers) -> None: ...

    def on_body(self, data: bytes) -> None: ...

    def on_end(self) -> None: ...

    def on_lost(self, reason: str, answered: bool) -> None:
        """`answered`: some byte of the answer had come."""
        ...


class Owner(Protocol):
    """Who keeps connections that are in nobody's use."""

    def opened(self, connection: UpstreamConnection) -> None: ...

    def freed(self, connection: UpstreamConnection) -> None:
        """The answer is whole and the connection may serve another request."""
        ...

    def gone(self, connection: UpstreamConnection) -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """Owned by one request from `send` until `on_end` or `on_lost`, by the pool in between."""

    __slots__ = ("_answered", "_complete", "_ends_with_close", "_feed", "_fields", "_fresh_head", "_headers",
                 "_keep_alive", "_known", "_owner", "_parser", "_parts", "_paused", "_poisoned", "_status",
                 "idle_since_s", "is_reused", "on_body", "on_header", "sink", "transport")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._parts: list[bytes] = []
        self._fields: Headers = {}
        # The parser calls these two itself: no Python frame for a header or a piece of a body.
        self.on_header = self._fields.__setitem__
        self.on_body = self._parts.append
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self.transport: asyncio.Transport | None = None
        self.sink: Sink | None = None
        self.is_reused = False
        self.idle_since_s = 0.0
        self._paused = self._poisoned = False
        self._known: KnownHead[Headers] | None = None
        self._status = 0
        self._reset()

    def _reset(self) -> None:
        self._headers: Headers = {}
        self._fresh_head = self._complete = self._answered = self._ends_with_close = self._keep_alive = False

    def send(self, head: bytes, pieces: list[bytes | memoryview], length: int, sink: Sink) -> None:
        """Sends a request; `sink` gets its answer. The transport buffers what the socket does not take."""
        self.sink = sink
        if self.transport is None:
            raise ConnectionError("the connection is closed")
        if length <= SMALL_BODY_BYTES:
            self.transport.write(b"".join((head, *pieces)))
        else:
            self.transport.writelines([head, *pieces])

    def abandon(self, sink: Sink) -> None:
        """Gives `sink`'s request up: the frontend sees the connection close and cancels it. Once the answer is whole
        the connection is somebody else's, and this does nothing."""
        if self.sink is sink:
            self.abort()

    def abort(self) -> None:
        """Closes the connection at once; its sink hears nothing more."""
        self.sink = None
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        """Stops reading, so that a slow client slows the datacenter instead of filling this process."""
        if not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        sink = self.sink
        if sink is None:
            self.abort()  # nobody asked: an idle connection that speaks cannot be trusted with a request
            return
        is_first, self._answered, known = not self._answered, True, self._known
        if is_first and known is not None and (body := known.body(data)) is not None:
            self._take_known(sink, known.told, body)
            return
        try:
            self._feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._lose("its answer is not valid HTTP")
            return
        if self._fresh_head:
            if is_first:
                self._learn(data)
            self._fresh_head = False
            sink.on_head(self._status, self._headers)
            sink = self.sink  # another one may take the body
        parts = self._parts
        if parts:
            data = parts.pop() if len(parts) == 1 else self._joined()
            if sink is not None:
                sink.on_body(data)
        if self._complete and self.sink is not None:
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.gone(self)
        sink, self.sink = self.sink, None
        self.transport = None
        if sink is None:
            return
        if self._ends_with_close and error is None:
            sink.on_end()
        else:
            sink.on_lost(f"connection lost ({type(error).__name__})" if error else "connection closed", self._answered)

    # parser callbacks

    def on_message_begin(self) -> None:
        self._poisoned = self._complete  # a second answer to one request: the connection is out of step
        self._fields.clear()

    def on_headers_complete(self) -> None:
        self._status = status = self._parser.get_status_code()
        if status < 200:
            return
        self._fresh_head = True
        self._headers = headers = {name.lower(): value for name, value in self._fields.items()}
        framed = b"content-length" in headers or b"transfer-encoding" in headers
        self._ends_with_close = not framed and status not in NO_BODY

    def on_message_complete(self) -> None:
        if self._status < 200:
            return  # an interim answer
        self._complete = True
        self._keep_alive = self._parser.should_keep_alive()

    def _learn(self, data: bytes) -> None:
        """Another whole answer with this head need not be parsed."""
        if self._complete and self._keep_alive and not self._poisoned and self._status == OK:
            headers = self._headers.copy()
            headers.pop(b"content-length", None)  # the next one's is another
            self._known = known_head(data, headers)

    def _take_known(self, sink: Sink, headers: Headers, body: bytes) -> None:
        """Gives a whole answer that has the last one's head."""
        sink.on_head(OK, headers)
        if body and self.sink is not None:
            self.sink.on_body(body)
        if self.sink is not None:
            self._keep_alive = True
            self._finish()

    def _joined(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    def _finish(self) -> None:
        sink, self.sink = self.sink, None
        keep_alive = self._keep_alive and not self._poisoned
        if self._paused:
            self.resume()
        self._reset()
        self.is_reused = True
        if keep_alive:
            self._owner.freed(self)
        elif self.transport is not None:
            self.transport.close()
        if sink is not None:
            sink.on_end()

    def _lose(self, reason: str) -> None:
        sink = self.sink
        self.abort()
        if sink is not None:
            sink.on_lost(reason, True)
