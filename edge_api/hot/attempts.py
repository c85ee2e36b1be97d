"""The attempts of one request, one after the other: a connection to a datacenter, what is sent on it, how it is left.

What an answer means, and what becomes of a failed attempt, is the dispatch's to say.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

import msgspec

from control_plane.contracts.usage import Attempt
from edge_api.dialects.base import Upstream
from edge_api.hot.client import Client
from edge_api.hot.failure import Failure, FailureKind
from edge_api.hot.hotpath import HotPath
from edge_api.hot.moving import Hold
from edge_api.hot.relay import StreamRelay
from edge_api.hot.request import Prepared
from edge_api.hot.splice import salted
from edge_api.hot.wire import Place, trace_headers
from edge_api.resume.resumer import Continuation
from edge_api.routing.table import Route
from edge_api.upstream.connection import Headers, UpstreamConnection
from edge_api.upstream.pool import PoolFull


class Attempts(ABC):
    """Owns the attempt that is under way, and the list of those that are over."""

    __slots__ = (
        "_attempts",
        "_body",
        "_client",
        "_connecting",
        "_connection",
        "_continuation",
        "_datacenter_id",
        "_delivered",
        "_headers",
        "_hold",
        "_hot",
        "_pause",
        "_place",
        "_prepared",
        "_relay",
        "_resuming",
        "_route",
        "_salt",
        "_services",
        "_session_lines",
        "_size",
        "_status",
        "_was_refreshed",
    )

    def __init__(self, client: Client, hot: HotPath, prepared: Prepared, salt: str, session_lines: bytes) -> None:
        self._client, self._hot, self._prepared, self._services = client, hot, prepared, hot.services
        self._salt, self._session_lines = salt, session_lines
        self._attempts: list[Attempt] = []
        self._place: Place | None = None
        self._route: Route | None = None
        self._datacenter_id = ""
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._relay: StreamRelay | None = None
        self._hold: Hold | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._continuation: Continuation | None = None
        self._delivered = 0
        self._was_refreshed = False
        self._status, self._size = 0, 0
        self._headers: Headers = {}
        self._body: list[bytes] = []

    @property
    def streams_from(self) -> str:
        return self._datacenter_id if self._prepared.asked.streamed else ""

    @abstractmethod
    def datacenter_lost(self) -> None: ...

    @abstractmethod
    def evacuate(self) -> None: ...

    @abstractmethod
    def on_head(self, status: int, headers: Headers) -> None: ...

    @abstractmethod
    def on_body(self, data: bytes) -> None: ...

    @abstractmethod
    def on_end(self) -> None: ...

    @abstractmethod
    def on_lost(self, reason: str, answered: bool) -> None: ...

    @abstractmethod
    def _attempt_failed(self, failure: Failure) -> None:
        """The attempt is over without an answer."""

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

    def _first_byte_is_late(self) -> None:
        if self._connection is not None:
            self._attempt_failed(Failure(FailureKind.SLOW, self._status))

    def _note_failure(self, failure: Failure) -> Failure:
        """Tells whoever learns from failures, and returns this one with what they know of it."""
        if failure.is_plain_500 and self._services.chooser.broke(self._datacenter_id):
            failure = msgspec.structs.replace(failure, is_shared=True)
        self._services.metrics.upstream_failed(self._datacenter_id, failure.kind)
        chooser, route = self._services.chooser, self._route
        if failure.kind is FailureKind.LOST:
            chooser.failed(self._datacenter_id)
        elif route is None:
            return failure
        elif failure.kind is FailureKind.OVERLOADED:
            chooser.overloaded(route, failure.retry_after_s)
        elif failure.counts_against_datacenter and self._prepared.asked.upstream is not Upstream.EMBEDDINGS:
            chooser.erred(route)  # that a model makes no embeddings is no fault of its datacenter
        return failure

    def _leave_attempt(self, status: int, failed: bool = False) -> None:
        """Whatever became of it, the attempt is over: its connection, its wait and its place in the count are free."""
        self._hot.first_byte.stop(self)
        if self._resuming is not None:  # it was about to go elsewhere
            self._resuming.cancel()
            self._resuming = None
        if self._hold is not None:
            self._hold.drop()
            self._hold = None
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
