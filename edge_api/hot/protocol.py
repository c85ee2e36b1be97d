"""uvicorn's HTTP protocol with the hot routes served inside it.

uvicorn keeps sockets, TLS, keep-alive and shutdown; every request that is not hot goes to the ASGI app as if this class
were not there. Requests of one connection are served one at a time, in order, hot and cold alike.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from control_plane.contracts import ids
from edge_api import errors
from edge_api.errors import Fault, Refusal
from edge_api.hot import respond
from edge_api.hot.exchange import Exchange
from edge_api.hot.hotpath import HotPath

HOT_PATHS = frozenset({b"/v1/chat/completions", b"/api/v1/chat/completions"})

log = structlog.get_logger()


class _TooManyPipelined(Exception):
    """The client sends requests faster than it reads answers."""


class EdgeProtocol(HttpToolsProtocol):
    """One client connection. `active` is the hot request being served, if it is a hot one's turn."""

    hot: HotPath
    write: Callable[[bytes], None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.active: Exchange | None = None
        self.client_address = ""
        self._head_bytes = 0
        self._is_in_head = self._is_arriving = False
        self._arrival_timer: asyncio.TimerHandle | None = None
        self._is_deaf = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client_address = self.client[0] if self.client else ""
        self.write = transport.write
        # A connection that never sends anything ends like an idle one.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.hot.services.limits.header_timeout_s, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse_upgrade()
        except httptools.HttpParserError as error:
            self._refuse_http(error)
        else:
            if self.active is not None:
                self.active.advance()
            if self._is_arriving or self._arrival_timer is not None:
                self._watch_arrival(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)
        active, self.active = self.active, None
        if active is not None:
            active.client_gone()
        self.pipeline.clear()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.active is not None:
            self.active.write_paused()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.active is not None:
            self.active.write_resumed()

    # parser callbacks

    def on_message_begin(self) -> None:
        # The ASGI scope, which uvicorn builds here, is built once it is known that the app is asked.
        self.url = b""
        self.headers = []
        self._head_bytes = 0
        self._is_in_head = self._is_arriving = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self.hot.services.limits.max_pipelined:
            raise _TooManyPipelined("too many requests are pipelined")
        self._is_in_head = False
        if self._arrival_timer is not None:
            self._stop_watching()  # the head came in time; the body has a deadline of its own
        if self.url.partition(b"?")[0] in HOT_PATHS and self.parser.get_method() == b"POST":
            self._begin_hot()
            return
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        cycle: object = self.cycle
        if isinstance(cycle, Exchange):
            cycle.body_piece(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_arriving = False
        cycle: object = self.cycle
        if isinstance(cycle, Exchange):
            cycle.body_complete = True
        else:
            super().on_message_complete()

    # ClientSide

    def server_headers(self) -> list[tuple[bytes, bytes]]:
        return self.server_state.default_headers

    def hold_reading(self) -> None:
        self.flow.pause_reading()

    def go_on_reading(self) -> None:
        self.flow.resume_reading()

    def finished(self, exchange: Exchange) -> None:
        self.active = None
        if exchange.keep_alive:
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        if exchange.body_complete:
            self.transport.close()
        else:
            self._linger()

    def abort(self) -> None:
        self.active = None
        self.transport.abort()

    # uvicorn's side

    def send_400_response(self, msg: str) -> None:
        self._refuse(errors.INVALID_HTTP, msg)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        waiting: object = cycle
        if isinstance(waiting, Exchange):
            self.active = waiting
            waiting.advance()
            self._watch_arrival()
        else:
            super()._start_asgi_task(cycle, app)

    def _begin_hot(self) -> None:
        chunked = self.parser.get_http_version() != "1.0"
        exchange = Exchange(self, self.hot, dict(self.headers), chunked and self.parser.should_keep_alive(), chunked)
        before, self.cycle = self.cycle, cast(RequestResponseCycle, exchange)
        if before is None or before.response_complete:
            self.active = exchange
        else:
            self.flow.pause_reading()
            cast("deque[Any]", self.pipeline).appendleft((exchange, None))

    # what is wrong on the wire

    def _refuse_http(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, _TooManyPipelined):
            self._refuse(errors.INVALID_HTTP, str(cause))
        elif isinstance(error, httptools.HttpParserCallbackError) and cause is not None:
            log.error("request_callback_failed", exc_info=cause)
            self._refuse(errors.INTERNAL_ERROR, "the edge failed on this request")
        else:
            self._refuse(errors.INVALID_HTTP, "the request is not valid HTTP/1.1")

    def _refuse_upgrade(self) -> None:
        self._refuse(errors.INVALID_HTTP, "this endpoint speaks plain HTTP/1.1; it upgrades to nothing")

    def _refuse(self, fault: Fault, message: str) -> None:
        """Ends the connection with an error, unless an answer is already on its way."""
        self._stop_watching()
        cycle: object = self.cycle
        if self.transport.is_closing() or self._is_deaf:
            return
        if cycle is None or self.cycle.response_complete:
            common = respond.identity_headers(ids.uuid7(self.hot.services.clock.time_s()), "")
            self.transport.write(respond.refusal(common + b"connection: close\r\n", Refusal(fault, message)))
            self._linger()
        elif isinstance(cycle, Exchange) and cycle is self.active and cycle.is_unsent:
            cycle.body_complete = cycle.keep_alive = False
            cycle.refuse(Refusal(fault, message))
        else:
            self.transport.abort()

    def _linger(self) -> None:
        """Says that the connection is over, and for a while reads and drops what the client still sends: closing at
        once would reset the connection under the answer."""
        self._is_deaf = True
        self._stop_watching()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._arrival_timer = self.loop.call_later(self.hot.services.limits.linger_s, self.transport.close)

    def _watch_arrival(self, size: int = 0) -> None:
        """A request that is still coming in has a deadline, and its head a bound: counted by reads, which is exact
        enough and costs a request that comes in one read nothing."""
        limits = self.hot.services.limits
        if self._is_in_head:
            self._head_bytes += size
            if self._head_bytes > limits.max_header_bytes:
                self._refuse(errors.HEADERS_TOO_LARGE, "the request's head is too long")
                return
        if not self._is_arriving:
            self._stop_watching()
        elif self._arrival_timer is None and not self.pipeline:
            in_body = self.cycle is not None and not self.cycle.response_complete
            self._arrival_timer = self.loop.call_later(
                limits.body_timeout_s if in_body else limits.header_timeout_s, self._arrival_is_late)

    def _arrival_is_late(self) -> None:
        self._arrival_timer = None
        if not self.transport.is_closing():
            self._refuse(errors.REQUEST_TIMEOUT, "the request did not come in whole in time")

    def _stop_watching(self) -> None:
        if self._arrival_timer is not None:
            self._arrival_timer.cancel()
            self._arrival_timer = None


def hot_protocol(hot: HotPath) -> type[EdgeProtocol]:
    """The protocol class for `uvicorn.Config(http=...)` of one server."""
    return type("BoundEdgeProtocol", (EdgeProtocol,), {"hot": hot})
