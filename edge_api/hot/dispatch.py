"""An admitted request on its way through datacenters: one `open` frame, attempts, one usage record.

A datacenter that fails before it accepted the request is left for another one, within the retry budget; one that
accepted it and is merely slow is not. A pooled connection that turns out to be dead before it answered anything is no
failure of the datacenter's: the same attempt goes on over a fresh one, once. A stream that breaks once its client has
something of it goes on in another datacenter, where `edge_api/resume` says that it can.
"""

from __future__ import annotations

import asyncio

import structlog

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.keys import Principal
from control_plane.contracts.usage import Attempt, Outcome
from edge_api import errors
from edge_api.dialects.base import Upstream
from edge_api.dialects.plain import PlainVoice
from edge_api.errors import Refusal
from edge_api.hot.answer import BadAnswer, read_answer
from edge_api.hot.client import CLIENT_GONE_STATUS, Client
from edge_api.hot.failure import Failure, FailureKind, give_up, judge, may_go_elsewhere, unroutable
from edge_api.hot.hotpath import HotPath
from edge_api.hot.meter import StreamMeter
from edge_api.hot.relay import StreamRelay
from edge_api.hot.request import Prepared
from edge_api.hot.respond import generation_name
from edge_api.hot.services import RouteNeed
from edge_api.hot.settle import Journal
from edge_api.hot.splice import salted
from edge_api.hot.too_long import length_refusal, may_be_too_long
from edge_api.hot.usage import NOTHING_DELIVERED, UNKNOWN
from edge_api.hot.wire import Place, session_headers, trace_headers
from edge_api.resume.demand import watch_for
from edge_api.resume.resumer import Break, Continuation
from edge_api.routing.retry import backoff_s
from edge_api.routing.table import NO_FACTS, Route, RoutedModel
from edge_api.upstream.connection import Headers, UpstreamConnection
from edge_api.upstream.pool import PoolFull

MAX_ERROR_BYTES = 64 * 1024
EVENT_STREAM = b"text/event-stream"
STRICT_SEED = b"x-meridian-strict-seed"
LOST_MIDWAY = Refusal(errors.UPSTREAM_UNAVAILABLE, "the upstream datacenter was lost in the middle of the answer")

log = structlog.get_logger()


class Dispatch:
    """Owns the attempts of one request, and its settlement. It is the sink of an answer until a stream begins."""

    __slots__ = (
        "_attempts",
        "_body",
        "_client",
        "_connecting",
        "_connection",
        "_continuation",
        "_datacenter_id",
        "_delivered",
        "_excluded",
        "_failures",
        "_headers",
        "_hot",
        "_journal",
        "_model",
        "_need",
        "_pause",
        "_place",
        "_prepared",
        "_relay",
        "_resuming",
        "_route",
        "_salt",
        "_services",
        "_session",
        "_session_lines",
        "_size",
        "_status",
        "_was_refreshed",
        "write",
    )

    def __init__(self, client: Client, hot: HotPath, principal: Principal, model: RoutedModel, prepared: Prepared,
                 session: str, need: RouteNeed, journal: Journal) -> None:
        self._client, self._hot, self._model, self._prepared = client, hot, model, prepared
        self._services = hot.services
        self.write = client.write
        self._journal = journal
        self._session, self._need, self._salt = session, need, principal.cache_salt
        self._session_lines = session_headers(session, client.headers, principal.team_id)
        self._attempts: list[Attempt] = []
        self._failures: list[Failure] = []
        self._excluded: frozenset[str] = frozenset()
        self._place: Place | None = None
        self._route: Route | None = None
        self._datacenter_id = ""
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._relay: StreamRelay | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._continuation: Continuation | None = None
        self._delivered = 0
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
            raise unroutable(self._model, self._need.regions)
        self._journal.open()
        self._try(route)

    def client_gone(self) -> int:
        """The client left: stop what is being generated, and settle for what was delivered. Returns the status that the
        client had, or would have had."""
        relay, was_sent = self._relay, self._connection is not None
        counts = relay.meter.partial_counts() if relay else UNKNOWN if was_sent else NOTHING_DELIVERED
        status = 200 if relay is not None else CLIENT_GONE_STATUS
        if relay is not None:
            relay.stop()
        if self._resuming is not None:
            self._resuming.cancel()
        self._leave_attempt(self._status)
        self._journal.settle(Outcome.CLIENT_GONE, counts, status, self._attempts)
        return status

    def pause(self) -> None:
        """The client's connection is full."""
        if self._relay is not None:
            self._relay.pause()

    def resume(self) -> None:
        if self._relay is not None:
            self._relay.resume()

    @property
    def streams_from(self) -> str:
        return self._datacenter_id if self._prepared.asked.streamed else ""

    def datacenter_lost(self) -> None:
        """The prober gave the datacenter up, whatever its connection says. Where nobody else can be reached its answer
        is waited for all the same: it may be slow, or this edge may be the one that is cut off."""
        connection, excluded = self._connection, self._excluded | {self._datacenter_id}
        if not self._services.chooser.has_other(self._model, excluded, self._need):
            return
        if connection is None:
            if self._connecting is not None:
                self._attempt_failed(Failure(FailureKind.LOST))
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
            self._refused(judged)

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

    def stream_completed(self, meter: StreamMeter) -> None:
        self._connection = None  # the relay reads the rest of its body, then the pool has it back
        self._services.retries.note_answer()
        self._leave_attempt(200)
        self._journal.settle(Outcome.COMPLETED, meter.complete_counts(), 200, self._attempts, meter.finish_reason(),
                             calls=meter.journal.called)

    def stream_broken(self, broken: Failure | Refusal) -> None:
        self._connection = None
        if isinstance(broken, Failure):
            self._attempt_failed(broken)
        elif self._relay is not None and self._relay.has_event and self._continuation is None:
            self._attempt_failed(Failure(FailureKind.BROKEN, broken.status))  # it had taken the request
        else:
            self._refused(broken)

    def stream_written(self) -> None:
        self._client.finish(200)

    # what becomes of a failed attempt

    def _refused(self, refused: Refusal) -> None:
        """The datacenter refuses what it was asked."""
        if self._continuation is not None:  # that is our own request, not the client's
            log.error("continuation_rejected", request_id=str(self._client.request_id), status=refused.status)
            self._leave_attempt(refused.status)
            self.not_resumed("rejected")
        else:
            self._services.chooser.succeeded(self._datacenter_id)
            self._leave_attempt(refused.status)
            self._end(refused, Outcome.COMPLETED, self._place.named if self._place else b"")

    def _attempt_failed(self, failure: Failure) -> None:
        """The attempt is over without an answer: the request goes elsewhere, or its client is told."""
        engine = self._route.engine if self._route is not None else NO_FACTS
        self._note_failure(failure)
        self._leave_attempt(failure.status, failed=failure.kind is not FailureKind.CROWDED)
        self._failures.append(failure)
        self._excluded |= {self._datacenter_id}
        self._forget_answer()
        relay = self._relay
        if relay is not None and relay.has_event:
            self._resume_elsewhere(relay, engine)
        elif len(self._failures) == 1 and may_be_too_long(failure, self._prepared, self._model) and self._place:
            self._resuming = asyncio.get_running_loop().create_task(
                self._measure(self._place, self._salt if engine.is_salt_aware else ""))
        else:
            self._go_elsewhere()

    async def _measure(self, place: Place, salt: str) -> None:
        """A prompt that is too long is refused, instead of breaking one datacenter after the other."""
        trace = trace_headers(self._client.headers, self._client.request_id)
        refused = await length_refusal(self._hot.pool, place.address, self._prepared, self._model, salt, trace)
        self._resuming = None
        if refused is not None:
            self._end(refused, Outcome.UPSTREAM_LOST)
        else:
            self._go_elsewhere()

    def _go_elsewhere(self) -> None:
        """Tries the request in another datacenter, or tells the client that none can serve it."""
        relay = self._relay
        route = self._elsewhere() if may_go_elsewhere(self._failures) else None
        if route is None:
            self._end(give_up(self._failures, self._prepared.asked.upstream), Outcome.UPSTREAM_LOST)
            return
        self._services.metrics.retried()
        if relay is not None:
            relay.meter.go_on()
        wait_s = backoff_s(len(self._failures))
        if wait_s:
            self._pause = asyncio.get_running_loop().call_later(wait_s, self._try, route)
        else:
            self._try(route)

    def _end(self, refused: Refusal, outcome: Outcome, datacenter: bytes = b"") -> None:
        """The request ends with an error: with its true status, or inside a stream whose head is out."""
        relay = self._relay
        if relay is None:
            self._journal.settle(outcome, NOTHING_DELIVERED, refused.status, self._attempts)
            self._client.refuse(refused, datacenter)
        else:
            self._journal.settle(outcome, relay.meter.lost_counts(), 200, self._attempts, "error")
            relay.fail(refused)

    def _elsewhere(self, excluded: frozenset[str] | None = None) -> Route | None:
        services, excluded = self._services, self._excluded if excluded is None else excluded
        regions = self._need.regions
        is_left = any(r.weight > 0 and r.datacenter_id not in excluded and (regions is None or r.region in regions)
                      for r in self._model.routes)
        is_move = (self._failures[-1].kind is FailureKind.LOST
                   and services.chooser.has_other(self._model, excluded, self._need))
        if not is_left or len(self._attempts) >= services.limits.max_attempts or not (
                services.retries.allow_move() if is_move else services.retries.allow()):
            return None
        return services.chooser.choose(self._model, self._session, excluded, self._need)

    # a stream that broke once its client had something of it

    def _resume_elsewhere(self, relay: StreamRelay, engine: EngineFacts) -> None:
        """Looks for a datacenter that goes on with the stream, while its client gets keep-alives."""
        if not may_go_elsewhere(self._failures):
            self.not_resumed(self._failures[-1].kind)
            return
        meter, asked = relay.meter, self._prepared.asked
        broken = Break(
            request_id=f"{self._client.request_id}.{self._client.attempt_number(len(self._attempts) + 1)}",
            sent=b"".join(self._prepared.pieces),
            upstream=asked.upstream, journal=meter.journal, usage=meter.usage, engine=engine,
            strict_seed=self._client.headers.get(STRICT_SEED) == b"1", salt=self._salt)
        self._resuming = asyncio.get_running_loop().create_task(
            self._hot.resumer.seek(broken, self, self._services.metrics.resumed))

    def resumes_in(self, refused: frozenset[str]) -> Route | None:
        """Where the stream may go on: where it has not been, else in any but the datacenter that broke it just now.
        That one will do as well, if it said itself that it could not go on: a worker of its died."""
        route = self._elsewhere(self._excluded | refused)
        if route is None:
            is_lost = self._failures[-1].kind is FailureKind.LOST
            route = self._elsewhere(refused | {self._datacenter_id} if is_lost else refused)
        return route

    def goes_on(self, continuation: Continuation, route: Route) -> None:
        self._resuming, relay = None, self._relay
        if relay is None:
            return
        relay.rewrite = continuation.rewrite
        relay.meter.go_on()
        if continuation.body:
            self._continuation, self._delivered = continuation, continuation.delivered
            self._try(route)
        else:
            relay.on_body(continuation.events)

    def not_resumed(self, reason: str) -> None:
        self._resuming = None
        self._leave_attempt(self._status)
        self._services.metrics.not_resumed(reason)
        self._end(LOST_MIDWAY, Outcome.UPSTREAM_LOST)

    # attempts

    def _try(self, route: Route) -> None:
        place = self._place = self._hot.place(route)
        self._route, self._datacenter_id, self._was_refreshed = route, route.datacenter_id, False
        self._pause = None
        self._services.open_requests.enter(route.datacenter_id, route.deployment_id)
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
        pieces, length = self._prepared.pieces, self._prepared.length
        if self._continuation is not None:
            pieces, length = [self._continuation.body], len(self._continuation.body)
        if self._salt and self._route is not None and self._route.engine.is_salt_aware:
            pieces = salted(pieces, self._salt)
            length = sum(map(len, pieces))
        connection.send(self._head(place, length), pieces, length, self)

    def _head(self, place: Place, length: int) -> bytes:
        """The whole request head."""
        asked = self._prepared.asked
        return (b"%bx-request-id: %b.%d\r\n%b%bcontent-length: %d\r\n\r\n"
                % (place.heads[asked.upstream, asked.streamed], str(self._client.request_id).encode(),
                   self._client.attempt_number(len(self._attempts) + 1), self._session_lines,
                   trace_headers(self._client.headers, self._client.request_id), length))

    def _begin_stream(self) -> StreamRelay:
        """The datacenter accepted the request: its client gets the answer's head now."""
        limits, asked = self._services.limits, self._prepared.asked
        meter = StreamMeter(self._model.price, self._prepared.wants_usage, asked.wants_each_usage,
                            watch_for(asked.fields), generation_name(self._client.request_id))
        voice = PlainVoice(asked.upstream) if asked.voice is None else asked.voice()
        relay = StreamRelay(self, meter, voice, self._client.chunked, limits.first_byte_timeout_s,
                            limits.idle_timeout_s, limits.max_event_bytes)
        relay.begin(self._client.begin_stream(self._place.named if self._place else b""))
        return relay

    def _answer(self, body: bytes) -> None:
        """A whole unary answer is in."""
        asked = self._prepared.asked
        try:
            if asked.streamed:
                raise BadAnswer("a stream was asked for")
            answer = read_answer(body, self._model.price, generation_name(self._client.request_id))
            told = answer.body if asked.answer is None else asked.answer(answer.body)
        except BadAnswer:
            self._attempt_failed(Failure(FailureKind.BROKEN, 200))
            return
        self._services.retries.note_answer()
        self._leave_attempt(200)
        self._journal.first_byte()
        self._journal.settle(Outcome.COMPLETED, answer.counts, 200, self._attempts, answer.finish_reason,
                             answer.cost, answer.calls)
        self._client.answer(self._place.named if self._place else b"", told)
        self._client.finish(200)

    def _first_byte_is_late(self) -> None:
        if self._connection is not None:
            self._attempt_failed(Failure(FailureKind.SLOW, self._status))

    def _note_failure(self, failure: Failure) -> None:
        self._services.metrics.upstream_failed(self._datacenter_id, failure.kind)
        chooser, route = self._services.chooser, self._route
        if failure.kind is FailureKind.LOST:
            chooser.failed(self._datacenter_id)
        elif route is None:
            return
        elif failure.kind is FailureKind.OVERLOADED:
            chooser.overloaded(route, failure.retry_after_s)
        elif failure.counts_against_datacenter and self._prepared.asked.upstream is not Upstream.EMBEDDINGS:
            chooser.erred(route)  # that a model makes no embeddings is no fault of its datacenter

    def _leave_attempt(self, status: int, failed: bool = False) -> None:
        """Whatever became of it, the attempt is over: its connection, its wait and its place in the count are free."""
        self._hot.first_byte.stop(self)
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.abandon(self)
            if self._relay is not None:  # until the next datacenter has accepted it, its sink is not the relay yet
                self._connection.abandon(self._relay)
            self._connection = None
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        route, self._route = self._route, None
        if route is None or self._place is None:
            return  # it waits between two attempts
        if self._continuation is not None:
            self._continuation.leave()
            self._continuation = None
        self._services.open_requests.leave(route.datacenter_id, route.deployment_id)
        self._hot.leave(self._place.address, self)
        self._attempts.append(Attempt(self._datacenter_id, status, self._delivered, failed))

    def _forget_answer(self) -> None:
        self._status, self._size, self._headers = 0, 0, {}
        self._body.clear()
