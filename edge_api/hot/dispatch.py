"""An admitted request on its way through datacenters: one `open` frame, attempts, one usage record.

A datacenter that fails before it accepted the request is left for another one, within the retry budget; one that
accepted it and is merely slow is not. A pooled connection that turns out to be dead before it answered anything is no
failure of the datacenter's: the same attempt goes on over a fresh one, once. A stream that breaks once its client has
something of it goes on in another datacenter, where `edge_api/resume` says that it can.
"""

from __future__ import annotations

import asyncio

import structlog

from control_plane.contracts import ids
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.keys import Principal
from control_plane.contracts.usage import Outcome
from edge_api import errors
from edge_api.dialects.plain import PlainVoice
from edge_api.errors import Refusal
from edge_api.hot.answer import BadAnswer, read_answer
from edge_api.hot.attempts import Attempts
from edge_api.hot.client import CLIENT_GONE_STATUS, Client
from edge_api.hot.failure import Failure, FailureKind, give_up, judge, may_go_elsewhere, unroutable
from edge_api.hot.hotpath import HotPath
from edge_api.hot.meter import StreamMeter
from edge_api.hot.moving import Hold
from edge_api.hot.relay import StreamRelay
from edge_api.hot.request import Prepared
from edge_api.hot.respond import generation_name
from edge_api.hot.services import RouteNeed
from edge_api.hot.settle import Journal
from edge_api.hot.too_long import length_refusal, may_be_too_long
from edge_api.hot.usage import NOTHING_DELIVERED, UNKNOWN
from edge_api.hot.wire import Place, session_headers, trace_headers
from edge_api.resume.demand import watch_for
from edge_api.resume.resumer import Break, Continuation
from edge_api.routing.retry import backoff_s
from edge_api.routing.table import NO_FACTS, Route, RoutedModel
from edge_api.upstream.connection import Headers

MAX_ERROR_BYTES = 64 * 1024
MOVE_PAUSE_S = 0.1
EVENT_STREAM = b"text/event-stream"
STRICT_SEED = b"x-meridian-strict-seed"
LOST_MIDWAY = Refusal(errors.UPSTREAM_UNAVAILABLE, "the upstream datacenter was lost in the middle of the answer")

log = structlog.get_logger()


class Dispatch(Attempts):
    """Owns the attempts of one request, and its settlement. It is the sink of an answer until a stream begins."""

    __slots__ = ("_excluded", "_failures", "_journal", "_model", "_need", "_session", "write")

    def __init__(self, client: Client, hot: HotPath, principal: Principal, model: RoutedModel, prepared: Prepared,
                 session: str, need: RouteNeed, journal: Journal) -> None:
        super().__init__(client, hot, prepared, principal.cache_salt,
                         session_headers(session, client.headers, principal.team_id))
        self.write = client.write
        self._model, self._session, self._need, self._journal = model, session, need, journal
        self._failures: list[Failure] = []
        self._excluded: frozenset[str] = frozenset()

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

    def datacenter_lost(self) -> None:
        """The prober gave the datacenter up, whatever its connection says. Where nobody else can be reached its answer
        is waited for all the same: it may be slow, or this edge may be the one that is cut off."""
        connection, excluded = self._connection, self._excluded | {self._datacenter_id}
        if not self._services.chooser.has_other(self._offered(), excluded, self._need):
            return
        if connection is None:
            if self._connecting is not None:
                self._attempt_failed(Failure(FailureKind.LOST))
            return
        sink = connection.sink
        connection.abort()
        if sink is not None:
            sink.on_lost("the datacenter does not answer probes", True)

    def evacuate(self) -> None:
        """The datacenter lives and is to be left: the request goes on elsewhere if it can, and else ends where it is.
        """
        relay, route = self._relay, self._route
        if self._connection is None or route is None or self._resuming is not None:
            return
        if relay is not None and relay.has_event:
            self._resuming = asyncio.get_running_loop().create_task(self._hot.resumer.move(
                self._broken(relay, route.engine), self, self._services.metrics.resumed))
        elif (other := self.moves_to()) is not None:
            self._leave_datacenter()
            self._begin_again(other, ids.jitter(MOVE_PAUSE_S, share=1.0))

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
        failure = self._note_failure(failure)
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
        route = self._elsewhere() if may_go_elsewhere(self._failures) else None
        if route is None:
            self._end(give_up(self._failures, self._prepared.asked.upstream), Outcome.UPSTREAM_LOST)
            return
        self._begin_again(route, backoff_s(len(self._failures)))

    def _begin_again(self, route: Route, wait_s: float) -> None:
        """Sends the request, of whose answer the client has nothing, to another datacenter."""
        self._services.metrics.retried()
        if self._relay is not None:
            self._relay.meter.go_on()
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

    def _elsewhere(self, excluded: frozenset[str] | None = None, is_move: bool = False) -> Route | None:
        services, excluded = self._services, self._excluded if excluded is None else excluded
        regions, model = self._need.regions, self._offered()
        is_left = any(r.weight > 0 and r.datacenter_id not in excluded and (regions is None or r.region in regions)
                      for r in model.routes)
        is_move = is_move or (self._failures[-1].kind is FailureKind.LOST
                              and services.chooser.has_other(model, excluded, self._need))
        if not is_left or not self._has_attempts or not (
                services.retries.allow_move() if is_move else services.retries.allow()):
            return None
        return services.chooser.choose(model, self._session, excluded, self._need)

    def _offered(self) -> RoutedModel:
        """The model as it is routed now: a stream may be older than what operators decided since. One that is offered
        no more is routed as it was. Its price stays what it was at the start."""
        table = self._services.table.current
        return self._model if table is None else table.models.get(self._model.id, self._model)

    @property
    def _has_attempts(self) -> bool:
        """Whether the request may be sent once more; one that is under way is an attempt already."""
        return len(self._attempts) + (self._route is not None) < self._services.limits.max_attempts

    # a stream that broke once its client had something of it

    def _resume_elsewhere(self, relay: StreamRelay, engine: EngineFacts) -> None:
        """Looks for a datacenter that goes on with the stream, while its client gets keep-alives."""
        if not may_go_elsewhere(self._failures):
            self.not_resumed(self._failures[-1].kind)
            return
        self._resuming = asyncio.get_running_loop().create_task(
            self._hot.resumer.seek(self._broken(relay, engine), self, self._services.metrics.resumed))

    def _broken(self, relay: StreamRelay, engine: EngineFacts) -> Break:
        """The stream as it would be, if it broke now."""
        meter, asked = relay.meter, self._prepared.asked
        return Break(
            request_id=f"{self._client.request_id}.{self._client.attempt_number(len(self._attempts) + 1)}",
            sent=b"".join(self._prepared.pieces),
            upstream=asked.upstream, journal=meter.journal, usage=meter.usage, engine=engine,
            strict_seed=self._client.headers.get(STRICT_SEED) == b"1", salt=self._salt)

    def resumes_in(self, refused: frozenset[str]) -> Route | None:
        """Where the stream may go on: where it has not been, else in any but the datacenter that broke it just now.
        That one will do as well, if it said itself that it could not go on: a worker of its died; or once it is back.
        """
        for excluded in (self._excluded | refused, refused | {self._datacenter_id}, refused):
            if self._services.chooser.has_other(self._offered(), excluded, self._need):
                return self._elsewhere(excluded)
        return None

    def may_wait(self) -> bool:
        """Whether a place may yet come back that the stream may go on in."""
        regions = self._need.regions
        return self._has_attempts and any(
            route.weight > 0 and (regions is None or route.region in regions) for route in self._offered().routes)

    def moves_to(self) -> Route | None:
        """Where the request can go that is to leave its datacenter, which lives."""
        excluded = self._excluded | {self._datacenter_id}
        is_other = self._services.chooser.has_other(self._offered(), excluded, self._need)
        return self._elsewhere(excluded, is_move=True) if is_other else None

    def holds(self) -> Break | None:
        """Keeps the stream where it is for a moment; null if it has ended, or begins elsewhere just now."""
        relay, connection, route = self._relay, self._connection, self._route
        if relay is None or route is None or connection is None or connection.sink is not relay:
            return None
        self._hold = Hold(connection, relay)
        return self._broken(relay, route.engine)

    def stays(self) -> None:
        """The stream ends where it is."""
        self._resuming, hold, self._hold = None, self._hold, None
        if hold is not None:
            hold.release()

    def moves(self, continuation: Continuation, route: Route) -> None:
        """The stream goes on elsewhere, from where it is held."""
        self._resuming = None
        self._leave_datacenter()
        self.goes_on(continuation, route)

    def _leave_datacenter(self) -> None:
        self._leave_attempt(self._status)
        self._excluded |= {self._datacenter_id}
        self._forget_answer()
        if self._relay is not None:
            self._relay.detach()

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

    # what is accepted

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
