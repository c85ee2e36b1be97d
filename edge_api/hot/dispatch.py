"""An admitted request on its way through datacenters: one `open` frame, attempts, one usage record.

A datacenter that fails before anything was answered is left for another one, within the retry budget. A pooled
connection that turns out to be dead before it answered anything is no failure of the datacenter's: the same attempt
goes on over a fresh one, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from control_plane.contracts.keys import Principal
from control_plane.contracts.usage import Attempt, Outcome
from edge_api import errors
from edge_api.errors import Refusal
from edge_api.hot import respond
from edge_api.hot.answer import BadAnswer, read_answer
from edge_api.hot.failure import Failure, FailureKind, give_up, judge, may_go_elsewhere
from edge_api.hot.hotpath import HotPath
from edge_api.hot.meter import StreamMeter
from edge_api.hot.relay import StreamRelay
from edge_api.hot.request import ChatRequest
from edge_api.hot.settle import Journal
from edge_api.hot.usage import NOTHING_DELIVERED, UNKNOWN, Counts
from edge_api.hot.wire import Place, trace_headers
from edge_api.routing.table import Route, RoutedModel
from edge_api.upstream.connection import Headers, UpstreamConnection
from edge_api.upstream.pool import PoolFull

CLIENT_GONE_STATUS = 499
MAX_ERROR_BYTES = 64 * 1024
EVENT_STREAM = b"text/event-stream"


class Client(Protocol):
    """The exchange that this request belongs to."""

    request_id: UUID
    headers: dict[bytes, bytes]
    started_s: float
    chunked: bool
    write: Callable[[bytes], None]

    def common_headers(self) -> bytes: ...

    def refuse(self, refused: Refusal, datacenter: bytes = b"") -> None: ...

    def finish(self, status: int) -> None: ...


class Dispatch:
    """Owns the attempts of one request, and its settlement. It is the sink of an answer until a stream begins."""

    __slots__ = (
        "_attempts",
        "_body",
        "_client",
        "_connecting",
        "_connection",
        "_datacenter_id",
        "_excluded",
        "_failures",
        "_headers",
        "_hot",
        "_journal",
        "_model",
        "_place",
        "_relay",
        "_request",
        "_services",
        "_session",
        "_size",
        "_status",
        "_team_id",
        "_was_refreshed",
        "write",
    )

    def __init__(self, client: Client, hot: HotPath, principal: Principal, model: RoutedModel,
                 request: ChatRequest) -> None:
        self._client, self._hot, self._model, self._request = client, hot, model, request
        self._services = hot.services
        self.write = client.write
        self._journal = Journal(hot.services, client.request_id, principal, model, request.streamed, client.started_s)
        self._team_id = principal.team_id
        self._session = ""
        self._attempts: list[Attempt] = []
        self._failures: list[Failure] = []
        self._excluded: frozenset[str] = frozenset()
        self._place: Place | None = None
        self._datacenter_id = ""
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._relay: StreamRelay | None = None
        self._was_refreshed = False
        self._status, self._size = 0, 0
        self._headers: Headers = {}
        self._body: list[bytes] = []

    def begin(self) -> None:
        """Sends the request on its way.

        Raises:
            Refusal: nothing was sent: no datacenter takes it, or it cannot be journalled.
        """
        services = self._services
        services.retries.note_request()
        self._session = services.session_key(self._client.headers, self._request.fields, self._team_id)
        route = services.chooser.choose(self._model, self._session, self._excluded)
        if route is None:
            reason = self._model.unroutable_reason or "no datacenter takes requests for it"
            raise Refusal(errors.MODEL_UNAVAILABLE, f"the model cannot be served at the moment: {reason}", "model")
        self._journal.open()
        self._try(route)

    def client_gone(self) -> None:
        """The client left: stop what is being generated, and settle for what was delivered."""
        relay, was_sent = self._relay, self._connection is not None
        counts = relay.meter.partial_counts() if relay else UNKNOWN if was_sent else NOTHING_DELIVERED
        status = 200 if relay is not None and relay.has_started else CLIENT_GONE_STATUS
        if relay is not None:
            relay.stop()
        self._leave_attempt(self._status)
        self._journal.settle(Outcome.CLIENT_GONE, counts, status, self._attempts)
        self._services.metrics.answered(status)

    def pause(self) -> None:
        """The client's connection is full."""
        if self._relay is not None and self._connection is not None:
            self._relay.is_paused = True
            self._connection.pause()

    def resume(self) -> None:
        if self._relay is not None and self._connection is not None:
            self._relay.is_paused = False
            self._connection.resume()

    # the sink of an answer's head and of a body that is no stream

    def on_head(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, headers
        connection = self._connection
        if status != 200 or connection is None:
            return
        self._services.chooser.succeeded(self._datacenter_id)
        if self._request.streamed and headers.get(b"content-type", b"").startswith(EVENT_STREAM):
            limits, asked = self._services.limits, self._request
            meter = StreamMeter(self._model.price, asked.wants_usage, asked.wants_each_usage)
            self._relay = connection.sink = StreamRelay(
                self, connection, meter, self._client.chunked, limits.idle_timeout_s, limits.max_event_bytes)

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        limit = self._services.limits.max_answer_bytes if self._status == 200 else MAX_ERROR_BYTES
        if self._size > limit:
            self.attempt_failed(Failure(FailureKind.BROKEN, self._status))
        else:
            self._body.append(data)

    def on_end(self) -> None:
        self._connection = None
        body = b"".join(self._body)
        if self._status == 200:
            self._answer(body)
            return
        judged = judge(self._status, self._headers, body)
        if isinstance(judged, Failure):
            self.attempt_failed(judged)
        else:
            self._services.chooser.succeeded(self._datacenter_id)
            self._leave_attempt(self._status)
            self._journal.settle(Outcome.COMPLETED, NOTHING_DELIVERED, judged.status, self._attempts)
            self._client.refuse(judged, self._place.named if self._place else b"")

    def on_lost(self, reason: str, answered: bool) -> None:
        connection, self._connection = self._connection, None
        if not answered and connection is not None and connection.is_reused and not self._was_refreshed:
            self._was_refreshed = True
            self._connect()
        else:
            self.attempt_failed(Failure(FailureKind.LOST, self._status))

    # the owner of a stream

    def stream_started(self) -> bytes:
        self._hot.first_byte.stop(self)
        self._journal.first_byte()
        return respond.stream_head(self._headers_of_answer(), self._client.chunked)

    def stream_completed(self, counts: Counts, finish_reason: str) -> None:
        self._connection = None  # the relay reads the rest of its body, then the pool has it back
        self._leave_attempt(200)
        self._journal.settle(Outcome.COMPLETED, counts, 200, self._attempts, finish_reason)

    def stream_lost(self, counts: Counts, kind: FailureKind) -> None:
        self._note_failure(Failure(kind, 200))
        self._leave_attempt(200)
        self._journal.settle(Outcome.UPSTREAM_LOST, counts, 200, self._attempts, "error")

    def stream_written(self) -> None:
        self._client.finish(200)

    def attempt_failed(self, failure: Failure) -> None:
        """Nothing of this attempt was answered: goes elsewhere, or tells the client."""
        self._note_failure(failure)
        self._leave_attempt(failure.status)
        self._failures.append(failure)
        self._excluded |= {self._datacenter_id}
        self._forget_answer()
        route = self._elsewhere() if may_go_elsewhere(self._failures) else None
        if route is not None:
            self._services.metrics.retried()
            self._try(route)
            return
        refused = give_up(self._failures)
        self._journal.settle(Outcome.UPSTREAM_LOST, NOTHING_DELIVERED, refused.status, self._attempts)
        self._client.refuse(refused)

    def _elsewhere(self) -> Route | None:
        services = self._services
        is_left = any(r.weight > 0 and r.datacenter_id not in self._excluded for r in self._model.routes)
        if not is_left or len(self._attempts) >= services.limits.max_attempts or not services.retries.allow():
            return None
        return services.chooser.choose(self._model, self._session, self._excluded)

    # attempts

    def _try(self, route: Route) -> None:
        place = self._place = self._hot.place(route)
        self._datacenter_id, self._was_refreshed = route.datacenter_id, False
        self._services.open_requests.enter(route.datacenter_id)
        connection = self._hot.pool.take(place.address)
        if connection is not None:
            self._send(connection, place)
        else:
            self._connect()

    def _connect(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._send_on_fresh())

    async def _send_on_fresh(self) -> None:
        place = self._place
        if place is None:
            return
        try:
            connection = await self._hot.pool.connect(place.address)
            self._connecting = None
            self._send(connection, place)
        except OSError as error:
            self._connecting = None
            self._connection = None
            self.attempt_failed(Failure(FailureKind.CROWDED if isinstance(error, PoolFull) else FailureKind.LOST))

    def _send(self, connection: UpstreamConnection, place: Place) -> None:
        self._connection = connection
        self._hot.first_byte.start(self, self._first_byte_is_late)
        connection.send(self._head(place), self._request.pieces, self._request.length, self)

    def _head(self, place: Place) -> bytes:
        """The whole request head."""
        request = self._request
        return (b"%bx-request-id: %b.%d\r\nx-dynamo-session-id: %b\r\n%bcontent-length: %d\r\n\r\n"
                % (place.stream_head if request.streamed else place.head, str(self._client.request_id).encode(),
                   len(self._attempts) + 1, self._session.encode(),
                   trace_headers(self._client.headers, self._client.request_id), request.length))

    def _answer(self, body: bytes) -> None:
        """A whole unary answer is in."""
        try:
            if self._request.streamed:
                raise BadAnswer("a stream was asked for")
            answer = read_answer(body, self._model.price)
        except BadAnswer:
            self.attempt_failed(Failure(FailureKind.BROKEN, 200))
            return
        self._leave_attempt(200)
        self._journal.first_byte()
        self._journal.settle(Outcome.COMPLETED, answer.counts, 200, self._attempts, answer.finish_reason,
                             answer.cost)
        self.write(respond.unary(self._headers_of_answer(), answer.body))
        self._client.finish(200)

    def _headers_of_answer(self) -> bytes:
        return (self._place.named if self._place else b"") + self._client.common_headers()

    def _first_byte_is_late(self) -> None:
        if self._connection is not None:
            self.attempt_failed(Failure(FailureKind.SLOW, self._status))

    def _note_failure(self, failure: Failure) -> None:
        self._services.metrics.upstream_failed(self._datacenter_id, failure.kind)
        if failure.counts_against_datacenter:
            self._services.chooser.failed(self._datacenter_id)

    def _leave_attempt(self, status: int) -> None:
        """Whatever became of it, the attempt is over: its connection, its wait and its place in the count are free."""
        self._hot.first_byte.stop(self)
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.abandon(self._relay or self)
            self._connection = None
        self._relay = None
        self._services.open_requests.leave(self._datacenter_id)
        self._attempts.append(Attempt(self._datacenter_id, status))

    def _forget_answer(self) -> None:
        self._status, self._size, self._headers = 0, 0, {}
        self._body.clear()
