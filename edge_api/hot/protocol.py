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
from edge_api.dialects.base import Dialect
from edge_api.errors import Fault, Refusal
from edge_api.hot import respond
from edge_api.hot.exchange import Exchange
from edge_api.hot.head import Credential, Head
from edge_api.hot.hotpath import HotPath
from edge_api.known_head import KnownHead

LEAVING_LINGER_S = 0.5
HTTP_VERSIONS = ("1.1", "1.0")
WRONG_VERSION = "this endpoint speaks HTTP/1.1"
NO_UPGRADE = "this endpoint speaks plain HTTP/1.1; it upgrades to nothing"

log = structlog.get_logger()


class _NotTaken(Exception):
    """A head that the parser understands and this edge does not take; the message is for the client."""


class EdgeProtocol(HttpToolsProtocol):
    """One client connection. `active` is the hot request being served, if it is a hot one's turn."""

    hot: HotPath
    write: Callable[[bytes], None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The parser calls dict.__setitem__ itself: no Python frame for a header. The last of several of a name counts.
        self._fields: dict[bytes, bytes] = {}
        self.on_header = self._fields.__setitem__  # type: ignore[method-assign, assignment]
        super().__init__(*args, **kwargs)
        self.active: Exchange | None = None
        self._known: KnownHead[Head] | None = None
        self.client_address = ""
        self.credential: Credential = (b"", b"", "")
        self._head_bytes = 0
        self._is_in_head = self._is_arriving = self._is_watched = self._is_leaving = self._has_body_moved = False
        self._arrives_since_s = 0.0
        self._is_deaf = False
        self._unread_bytes = 0
        self._idle_since_s = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.hot.services.limits.max_connections:
            transport.abort()
            return
        self.client_address = self.client[0] if self.client else ""
        self.write = transport.write
        self.hot.head_arrival.start(self, self._head_is_late)
        self._is_watched = True

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        known = self._known
        if known is not None and self.active is None and not self._is_arriving and not self._is_leaving:
            body = known.body(data)
            if body is not None:
                self._take_known(known.told, body)
                return
        is_first = self.active is None and not self._is_arriving
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse_upgrade()
        except httptools.HttpParserError as error:
            self._refuse_http(error)
        else:
            active, cycle = self.active, cast(object, self.cycle)
            if active is not None:
                if is_first and active.body_complete and active is cycle:
                    self._known = active.head.known(data)
                active.advance()
            if self._is_arriving or self._is_watched:
                self._watch_arrival(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.hot.stalled_client.stop(self)
        super().connection_lost(exc)
        active, self.active = self.active, None
        if active is not None:
            active.client_gone()
        self.pipeline.clear()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()
        if self.active is not None:
            self.active.write_paused()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.hot.stalled_client.stop(self)
        if self.active is not None:
            self.active.write_resumed()

    # parser callbacks

    def on_message_begin(self) -> None:
        # The ASGI scope, which uvicorn builds here, is built once it is known that the app is asked.
        self.url, self._known = b"", None
        self._fields.clear()
        self._idle_since_s = 0.0  # not before: line ends, or the rest of a body that nobody wants, are no request
        self._head_bytes = 0
        self._is_in_head = self._is_arriving = True

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self.hot.services.limits.max_pipelined:
            raise _NotTaken("too many requests are pipelined")
        if self.parser.should_upgrade():
            raise _NotTaken(NO_UPGRADE)
        self._is_in_head = False
        if self._is_watched:
            self._stop_watching()  # the head came in time; the body has deadlines of its own
        if not self.url.startswith(b"/"):
            self.url = _origin_form(self.url)
        dialect = self.hot.dialects.get(self.url.partition(b"?")[0])
        if dialect is not None and self.parser.get_method() == b"POST":
            self._begin_hot(dialect)
            return
        if self.parser.get_http_version() not in HTTP_VERSIONS:
            raise _NotTaken(WRONG_VERSION)
        url = self.url
        super().on_message_begin()
        self.url = url
        for name, value in self._fields.items():
            super().on_header(name, value)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_body_moved = True
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
            self._close()
        else:
            self._linger()

    # uvicorn's side

    def on_response_complete(self) -> None:
        # As uvicorn's, but a client that is idle for a moment costs no timer.
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._is_leaving and not self._is_arriving:
            self._close()
        else:
            self._idle_since_s = self.loop.time()
            if self._idle_timer is None:
                self._idle_timer = self.loop.call_later(self.hot.services.limits.keep_alive_s, self._look_if_idle)
            if self._is_arriving:
                self._watch_head()

    def _look_if_idle(self) -> None:
        self._idle_timer = None
        if not self._idle_since_s:
            return
        left_s = self._idle_since_s + self.hot.services.limits.keep_alive_s - self.loop.time()
        if left_s > 0:
            self._idle_timer = self.loop.call_later(left_s, self._look_if_idle)
        else:
            self._close()

    def shutdown(self) -> None:
        self._is_leaving = True
        if self._is_arriving and not self._is_deaf:
            self.loop.call_later(self.hot.services.limits.leaving_arrival_s, self._arrives_too_late)
        else:
            super().shutdown()

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

    def _begin_hot(self, dialect: Dialect) -> None:
        version = self.parser.get_http_version()
        if version not in HTTP_VERSIONS:
            raise _NotTaken(WRONG_VERSION)
        chunked = version != "1.0"
        keep_alive = chunked and self.parser.should_keep_alive() and not self._is_leaving
        headers = {name.lower(): value for name, value in self._fields.items()}
        if b"transfer-encoding" in headers and (not chunked or headers[b"transfer-encoding"].lower() != b"chunked"):
            raise _NotTaken("a body may be chunked and nothing else, and that in HTTP/1.1 alone")
        exchange = Exchange(self, self.hot, Head(dialect, headers, keep_alive, chunked))
        before, self.cycle = self.cycle, cast(RequestResponseCycle, exchange)
        if before is None or before.response_complete:
            self.active = exchange
        else:
            self.flow.pause_reading()
            cast("deque[Any]", self.pipeline).appendleft((exchange, None))

    def _take_known(self, head: Head, body: bytes) -> None:
        """Serves a request that came whole, with the head of the last one."""
        self._idle_since_s = 0.0
        exchange = self.active = Exchange(self, self.hot, head)
        self.cycle = cast(RequestResponseCycle, exchange)
        exchange.body_piece(body)
        exchange.body_complete = True
        exchange.advance()

    # what is wrong on the wire

    def _refuse_http(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, _NotTaken):
            self._refuse(errors.INVALID_HTTP, str(cause))
        elif isinstance(cause, httptools.HttpParserInvalidURLError):
            self._refuse(errors.INVALID_HTTP, "the request's target is no URL")
        elif isinstance(error, httptools.HttpParserCallbackError) and cause is not None:
            log.error("request_callback_failed", exc_info=cause)
            self._refuse(errors.INTERNAL_ERROR, "the edge failed on this request")
        else:
            self._refuse(errors.INVALID_HTTP, "the request is not valid HTTP/1.1")

    def _refuse_upgrade(self) -> None:
        self._refuse(errors.INVALID_HTTP, NO_UPGRADE)

    def _refuse(self, fault: Fault, message: str) -> None:
        """Ends the connection with an error, unless an answer is already on its way."""
        self._stop_watching()
        cycle: object = self.cycle
        if self.transport.is_closing() or self._is_deaf:
            return
        if cycle is None or self.cycle.response_complete:
            request_id, refused = ids.uuid7(self.hot.services.clock.time_s()), Refusal(fault, message)
            dialect = self.hot.dialects.get(self.url.partition(b"?")[0])
            status, body = dialect.refusal(refused, request_id) if dialect else (refused.status, refused.body())
            common = respond.identity_headers(request_id, "")
            self.transport.write(respond.refusal(common + b"connection: close\r\n", refused, status, body))
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
        linger_s = self.hot.services.limits.linger_s
        self.loop.call_later(min(linger_s, LEAVING_LINGER_S) if self._is_leaving else linger_s, self._close)

    def _close(self) -> None:
        """Closes the connection once the client has read what is written; it has its time for that, and no more."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._watch_reader()

    def _watch_reader(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self.hot.stalled_client.start(self, self._reader_stalls)

    def _reader_stalls(self) -> None:
        """A client that has read some of its answer meanwhile is merely slow. `connection_lost` settles the rest."""
        if self.transport.get_write_buffer_size() < self._unread_bytes:
            self._watch_reader()
        else:
            log.info("client_stalled", unread_bytes=self._unread_bytes)
            self.transport.abort()

    def _watch_arrival(self, size: int = 0) -> None:
        """A request that is still coming in has deadlines, and its head a bound: counted by reads, which is exact
        enough and costs a request that comes in one read nothing."""
        limits = self.hot.services.limits
        if self._has_body_moved:
            self._has_body_moved, self._head_bytes = False, 0
        elif self._is_in_head or self._is_arriving:  # what is no body behind a head is trailers, which the parser keeps
            self._head_bytes += size
            if self._head_bytes > limits.max_header_bytes:
                self._refuse(errors.HEADERS_TOO_LARGE, "the request's head or its trailers are too long")
                return
        if not self._is_arriving:
            if self.cycle is not None:  # line ends alone begin no request
                self._stop_watching()
        elif self.cycle is None or self.cycle.response_complete:
            self._watch_head()
        elif self.active is None or (self.active.is_unsent and not self.pipeline):
            self._watch_body(limits.body_timeout_s)  # not what arrives behind a request that is being answered

    def _watch_head(self) -> None:
        """A head has one deadline, however it trickles in."""
        if not self._is_watched:
            self._is_watched = True
            self.hot.head_arrival.start(self, self._head_is_late)

    def _watch_body(self, longest_s: float) -> None:
        """A body may take as long as it keeps coming, up to `longest_s` in all."""
        if not self._is_watched:
            self._is_watched, self._arrives_since_s = True, self.loop.time()
        elif self.loop.time() - self._arrives_since_s > longest_s:
            self._arrival_is_late()
            return
        self.hot.body_pause.start(self, self._arrival_is_late)

    def _head_is_late(self) -> None:
        """Whoever has sent nothing at all is not told that it was too slow."""
        if self._is_arriving:
            self._arrival_is_late()
        else:
            self._close()

    def _arrival_is_late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(errors.REQUEST_TIMEOUT, "the request did not come in whole in time")

    def _arrives_too_late(self) -> None:
        """The edge ends, and a request has not come in whole: it is not served; what is being answered is."""
        if not self._is_arriving or self.transport.is_closing():
            return
        if self.active is None or (self.active.is_unsent and not self.pipeline):
            self._refuse(errors.NOT_READY, "this edge is being stopped; the request had not come in whole")
        else:
            self.active.keep_alive = False

    def _stop_watching(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self.hot.head_arrival.stop(self)
            self.hot.body_pause.stop(self)


def _origin_form(target: bytes) -> bytes:
    """A target that names its host, too, without it. Raises HttpParserInvalidURLError."""
    url = httptools.parse_url(target)
    return (url.path or b"/") + (b"?" + url.query if url.query else b"")


def hot_protocol(hot: HotPath) -> type[EdgeProtocol]:
    """The protocol class for `uvicorn.Config(http=...)` of one server."""
    return type("BoundEdgeProtocol", (EdgeProtocol,), {"hot": hot})
