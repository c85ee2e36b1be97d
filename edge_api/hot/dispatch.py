"""An admitted request on its way through datacenters: one `open` frame, attempts, one usage record.

A datacenter that fails before it accepted the request is left for another one, within the retry budget; one that
accepted it and is merely slow is not. A pooled connection that turns out to be dead before it answered anything is no
failure of the datacenter's: the same attempt goes on over a fresh one, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from control_plane.contracts.keys import Principal
from control_plane.contracts.usage import Attempt, Outcome
from edge_api import errors
from edge_api.dialects.plain import PlainVoice
from edge_api.errors import Refusal
from edge_api.hot import respond
from edge_api.hot.answer import BadAnswer, read_answer
from edge_api.hot.failure import Failure, FailureKind, give_up, judge, may_go_elsewhere
from edge_api.hot.hotpath import HotPath
from edge_api.hot.meter import StreamMeter
from edge_api.hot.relay import StreamRelay
from edge_api.hot.request import Prepared
from edge_api.hot.services import Grant, RouteNeed
from edge_api.hot.settle import Journal
from edge_api.hot.usage import NOTHING_DELIVERED, UNKNOWN, Counts
from edge_api.hot.wire import Place, trace_headers
from edge_api.routing.table import Route, RoutedModel
from edge_api.upstream.connection import Headers, UpstreamConnection
from edge_api.upstream.pool import PoolFull

CLIENT_GONE_STATUS = 499
MAX_ERROR_BYTES = 64 * 1024
EVENT_STREAM = b"text/event-stream"
LOST_MIDWAY = Refusal(errors.UPSTREAM_UNAVAILABLE, "the upstream datacenter was lost in the middle of the answer")


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
        "_need",
        "_place",
        "_prepared",
        "_relay",
        "_route",
        "_salt",
        "_services",
        "_session",
        "_size",
        "_status",
        "_was_refreshed",
        "write",
    )

    def __init__(self, client: Client, hot: HotPath, principal: Principal, model: RoutedModel, prepared: Prepared,
                 session: str, need: RouteNeed, grant: Grant, dialect: str) -> None:
        self._client, self._hot, self._model, self._prepared = client, hot, model, prepared
        self._services = hot.services
        self.write = client.write
        self._journal = Journal(hot.services, client.request_id, principal, model, prepared.asked, client.started_s,
                                dialect, session, grant)
        self._session, self._need, self._salt = session, need, principal.cache_salt
        self._attempts: list[Attempt] = []
        self._failures: list[Failure] = []
        self._excluded: frozenset[str] = frozenset()
        self._place: Place | None = None
        self._route: Route | None = None
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
        route = services.chooser.choose(self._model, self._session, self._excluded, self._need)
        if route is None:
            raise self._unroutable()
        self._journal.open()
        self._try(route)

    def client_gone(self) -> None:
        """The client left: stop what is being generated, and settle for what was delivered."""
        relay, was_sent = self._relay, self._connection is not None
        counts = relay.meter.partial_counts() if relay else UNKNOWN if was_sent else NOTHING_DELIVERED
        status = 200 if relay is not None else CLIENT_GONE_STATUS
        if relay is not None:
            relay.stop()
        self._leave_attempt(self._status)
        self._journal.settle(Outcome.CLIENT_GONE, counts, status, self._attempts)
        self._services.metrics.answered(status)

    def pause(self) -> None:
        """The client's connection is full."""
        if self._relay is not None:
            self._relay.pause()

    def resume(self) -> None:
        if self._relay is not None:
            self._relay.resume()

    def datacenter_lost(self) -> None:
        """The prober gave the datacenter up, whatever its connection says."""
        connection = self._connection
        if connection is None:
            return
        sink = connection.sink
        connection.abort()
        if sink is not None:
            sink.on_lost("the datacenter does not answer probes", True)

    # the sink of an answer's head and of a body that is no stream

    def on_head(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, headers
        connection = self._connection
        if status != 200 or connection is None:
            return
        self._services.chooser.succeeded(self._datacenter_id)
        if self._prepared.asked.streamed and headers.get(b"content-type", b"").startswith(EVENT_STREAM):
            self._hot.first_byte.stop(self)
            if self._relay is None:
                self._relay = self._begin_stream()
            self._relay.attach(connection)

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        limit = self._services.limits.max_answer_bytes if self._status == 200 else MAX_ERROR_BYTES
        if self._size > limit:
            self._attempt_failed(Failure(FailureKind.BROKEN, self._status))
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
            self._attempt_failed(judged)
        else:
            self._services.chooser.succeeded(self._datacenter_id)
            self._leave_attempt(self._status)
            self._end(judged, Outcome.COMPLETED, self._place.named if self._place else b"")

    def on_lost(self, reason: str, answered: bool) -> None:
        connection, self._connection = self._connection, None
        if not answered and connection is not None and connection.is_reused and not self._was_refreshed:
            self._was_refreshed = True
            self._connect()
        else:
            self._attempt_failed(Failure(FailureKind.LOST, self._status))

    # the owner of a stream

    def first_event(self) -> None:
        self._journal.first_byte()

    def stream_completed(self, counts: Counts, finish_reason: str) -> None:
        self._connection = None  # the relay reads the rest of its body, then the pool has it back
        self._leave_attempt(200)
        self._journal.settle(Outcome.COMPLETED, counts, 200, self._attempts, finish_reason)

    def stream_broken(self, failure: Failure) -> None:
        self._connection = None
        self._attempt_failed(failure)

    def stream_written(self) -> None:
        self._client.finish(200)

    # what becomes of a failed attempt

    def _attempt_failed(self, failure: Failure) -> None:
        """The attempt is over without an answer: the request goes elsewhere, or its client is told."""
        self._note_failure(failure)
        self._leave_attempt(failure.status)
        self._failures.append(failure)
        self._excluded |= {self._datacenter_id}
        self._forget_answer()
        relay = self._relay
        route = self._elsewhere() if may_go_elsewhere(self._failures) and not (relay and relay.has_event) else None
        if route is None:
            self._end(LOST_MIDWAY if relay and relay.has_event else give_up(self._failures), Outcome.UPSTREAM_LOST)
            return
        self._services.metrics.retried()
        if relay is not None:
            relay.meter.go_on()
        self._try(route)

    def _end(self, refused: Refusal, outcome: Outcome, datacenter: bytes = b"") -> None:
        """The request ends with an error: with its true status, or inside a stream whose head is out."""
        relay = self._relay
        if relay is None:
            self._journal.settle(outcome, NOTHING_DELIVERED, refused.status, self._attempts)
            self._client.refuse(refused, datacenter)
        else:
            self._journal.settle(Outcome.UPSTREAM_LOST, relay.meter.lost_counts(), 200, self._attempts, "error")
            relay.fail(refused)

    def _elsewhere(self) -> Route | None:
        services = self._services
        is_left = any(r.weight > 0 and r.datacenter_id not in self._excluded for r in self._model.routes)
        if not is_left or len(self._attempts) >= services.limits.max_attempts or not services.retries.allow():
            return None
        return services.chooser.choose(self._model, self._session, self._excluded, self._need)

    def _unroutable(self) -> Refusal:
        regions = self._need.regions
        if regions is not None and any(r.weight > 0 and r.region not in regions for r in self._model.routes):
            return Refusal(errors.REGION_UNAVAILABLE, "no datacenter in the regions that this request may be served in "
                           "takes requests for the model at the moment", "model")
        reason = self._model.unroutable_reason or "no datacenter takes requests for it"
        return Refusal(errors.MODEL_UNAVAILABLE, f"the model cannot be served at the moment: {reason}", "model")

    # attempts

    def _try(self, route: Route) -> None:
        place = self._place = self._hot.place(route)
        self._route, self._datacenter_id, self._was_refreshed = route, route.datacenter_id, False
        self._services.open_requests.enter(route.datacenter_id)
        self._hot.enter(place.address, self)
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
            self._attempt_failed(Failure(FailureKind.CROWDED if isinstance(error, PoolFull) else FailureKind.LOST))

    def _send(self, connection: UpstreamConnection, place: Place) -> None:
        self._connection = connection
        self._hot.first_byte.start(self, self._first_byte_is_late)
        prepared = self._prepared
        pieces, length = prepared.pieces, prepared.length
        if self._salt and self._route is not None and self._route.engine.is_salt_aware:
            pieces, length = prepared.salted(self._salt)
        connection.send(self._head(place, length), pieces, length, self)

    def _head(self, place: Place, length: int) -> bytes:
        """The whole request head."""
        asked = self._prepared.asked
        return (b"%bx-request-id: %b.%d\r\nx-dynamo-session-id: %b\r\n%bcontent-length: %d\r\n\r\n"
                % (place.heads[asked.upstream, asked.streamed], str(self._client.request_id).encode(),
                   len(self._attempts) + 1, self._session.encode(),
                   trace_headers(self._client.headers, self._client.request_id), length))

    def _begin_stream(self) -> StreamRelay:
        """The datacenter accepted the request: its client gets the answer's head now."""
        limits, asked = self._services.limits, self._prepared.asked
        meter = StreamMeter(self._model.price, self._prepared.wants_usage, asked.wants_each_usage)
        voice = PlainVoice(asked.upstream) if asked.voice is None else asked.voice()
        relay = StreamRelay(self, meter, voice, self._client.chunked, limits.first_byte_timeout_s,
                            limits.idle_timeout_s, limits.max_event_bytes)
        relay.begin(respond.stream_head(self._headers_of_answer(), self._client.chunked))
        return relay

    def _answer(self, body: bytes) -> None:
        """A whole unary answer is in."""
        asked = self._prepared.asked
        try:
            if asked.streamed:
                raise BadAnswer("a stream was asked for")
            answer = read_answer(body, self._model.price)
        except BadAnswer:
            self._attempt_failed(Failure(FailureKind.BROKEN, 200))
            return
        self._leave_attempt(200)
        self._journal.first_byte()
        self._journal.settle(Outcome.COMPLETED, answer.counts, 200, self._attempts, answer.finish_reason,
                             answer.cost)
        told = answer.body if asked.answer is None else asked.answer(answer.body)
        self.write(respond.unary(self._headers_of_answer(), told))
        self._client.finish(200)

    def _headers_of_answer(self) -> bytes:
        return (self._place.named if self._place else b"") + self._client.common_headers()

    def _first_byte_is_late(self) -> None:
        if self._connection is not None:
            self._attempt_failed(Failure(FailureKind.SLOW, self._status))

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
        self._services.open_requests.leave(self._datacenter_id)
        if self._place is not None:
            self._hot.leave(self._place.address, self)
        self._attempts.append(Attempt(self._datacenter_id, status))

    def _forget_answer(self) -> None:
        self._status, self._size, self._headers = 0, 0, {}
        self._body.clear()
