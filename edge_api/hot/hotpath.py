"""What all connections of the hot path share."""

import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from edge_api.dialects.base import Dialect
from edge_api.dialects.routes import HOT_ROUTES
from edge_api.hot.bodies import Bodies
from edge_api.hot.deadlines import Deadlines
from edge_api.hot.services import Services
from edge_api.hot.wire import Place, place_of
from edge_api.resume.resumer import Resumer
from edge_api.routing.table import Route
from edge_api.upstream.pool import Address, PoolLimits, UpstreamPool

MAX_PLACES = 1_024

log = structlog.get_logger()

DefaultHeaders = list[tuple[bytes, bytes]]


class Attempting(Protocol):
    """A request that waits for a datacenter. `streams_from` is where its stream comes from, empty if it is none."""

    @property
    def streams_from(self) -> str: ...

    def datacenter_lost(self) -> None: ...

    def evacuate(self) -> None:
        """Its datacenter lives and is to be left."""
        ...


class HotPath:
    """Owns the upstream connections, the waits of all requests and clients, the places of streams that go on elsewhere,
    the room that bodies take, and the server's own headers as bytes."""

    dialects: Mapping[bytes, Dialect] = HOT_ROUTES

    def __init__(self, services: Services, tls: ssl.SSLContext | None = None) -> None:
        limits = services.limits
        self.services = services
        self.pool = UpstreamPool(PoolLimits(
            connect_timeout_s=limits.connect_timeout_s, idle_s=limits.pool_idle_s, max_idle=limits.pool_max_idle,
            max_open=limits.pool_max_open), services.clock, tls)
        self.resumer = Resumer(self.pool, place_wait_s=limits.resume_wait_s)
        self.bodies = Bodies()
        self.first_byte = Deadlines(limits.first_byte_timeout_s)
        self.head_arrival = Deadlines(limits.header_timeout_s)
        self.body_pause = Deadlines(limits.body_pause_s)
        self.stalled_client = Deadlines(limits.client_stall_timeout_s)
        self._places: dict[int, tuple[Route, Place]] = {}
        self._attempting: dict[Address, set[Attempting]] = {}
        self._headers: DefaultHeaders = []
        self._rendered = b""

    def place(self, route: Route) -> Place:
        """The route's place, remembered by the route's identity: routes are few, and hashing one costs more than this.
        """
        known = self._places.get(id(route))
        if known is not None and known[0] is route:
            return known[1]
        if len(self._places) >= MAX_PLACES:
            self._places.clear()
        place = place_of(route)
        self._places[id(route)] = (route, place)
        return place

    def enter(self, address: Address, attempting: Attempting) -> None:
        """A request is sent to this frontend."""
        waiting = self._attempting.get(address)
        if waiting is None:
            waiting = self._attempting[address] = set()
        waiting.add(attempting)

    def leave(self, address: Address, attempting: Attempting) -> None:
        """It waits for it no more."""
        self._attempting[address].discard(attempting)

    def lost(self, address: Address) -> None:
        """The frontend is lost, as far as this edge can see: what waits for it goes on elsewhere."""
        waiting = self.open_at(address)
        log.warning("datacenter_lost", host=address[0], port=address[1], open_requests=len(waiting))
        self.pool.forget(address)
        for attempting in waiting:
            attempting.datacenter_lost()

    def open_at(self, address: Address) -> Sequence[Attempting]:
        """What waits for this frontend now."""
        return list(self._attempting.get(address, ()))

    def open_streams(self) -> dict[str, int]:
        """How many streams are open in each datacenter. It is asked for every few seconds: who counts as requests come
        and go would make each of them pay."""
        counts = Counter(attempting.streams_from for waiting in self._attempting.values() for attempting in waiting)
        del counts[""]
        return dict(counts)

    def rendered(self, headers: DefaultHeaders) -> bytes:
        """The server's headers as bytes. uvicorn makes a new list of them every second."""
        if headers is not self._headers:
            self._headers = headers
            self._rendered = b"".join(b"%b: %b\r\n" % header for header in headers)
        return self._rendered
