"""A real uvicorn with the hot protocol, the edge's real parts behind it, and two scripted datacenters before it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn
import uvloop

from control_plane.contracts import ids
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.keys import Principal, Scope
from control_plane.contracts.usage import UsageOpen, UsageRecord
from edge_api.admission.unlimited import NoAdmission
from edge_api.app import ColdParts, build_app
from edge_api.dialects.routes import HOT_ROUTES
from edge_api.hot.hotpath import HotPath
from edge_api.hot.protocol import hot_protocol
from edge_api.hot.services import KeyDirectoryAway, Limits, Services, TooManyUnknownKeys
from edge_api.metering.frames import decode, scan
from edge_api.metering.outbox import Outbox, segment_numbers, segment_path
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.routing.choose import Chooser
from edge_api.routing.health import Health
from edge_api.routing.retry import RetryBudget
from edge_api.routing.session import session_key
from edge_api.snapshot.holder import TableHolder
from tests.integration.edge_api.hot.client import Client
from tests.integration.edge_api.hot.datacenter import Datacenter, answers
from tests.unit.edge_api.builders import MODEL, snapshot

HOME, OTHER = "us-east-1", "eu-north-1"
LIMITS = Limits(
    max_body_bytes=1 << 20, header_timeout_s=1.0, body_pause_s=1.0, connect_timeout_s=1.0, first_byte_timeout_s=1.0,
    idle_timeout_s=0.6, client_stall_timeout_s=0.6, linger_s=0.5,
    leaving_arrival_s=0.5, resume_wait_s=2.5)


@dataclass
class Directory:
    """The keys that are cached, those that must be asked for, and how asking fails."""

    known: dict[str, Principal] = field(default_factory=dict)
    remote: dict[str, Principal] = field(default_factory=dict)
    fault: Exception | None = None
    asked: list[str] = field(default_factory=list)
    delay_s: float = 0.0

    def cached(self, digest: str) -> Principal | None:
        return self.known.get(digest)

    async def find(self, digest: str, client_address: str) -> Principal | None:
        self.asked.append(client_address)
        await asyncio.sleep(self.delay_s)
        if self.fault is not None:
            raise self.fault
        return self.remote.get(digest)

    def away(self) -> None:
        self.fault = KeyDirectoryAway("away")

    def overrun(self) -> None:
        self.fault = TooManyUnknownKeys("127.0.0.1")


def ejections(edge: "EdgeUnderTest", datacenter_id: str) -> float:
    """How often the datacenter was ejected."""
    labels = {"datacenter": datacenter_id}
    return edge.metrics.registry.get_sample_value("meridian_edge_ejections_total", labels) or 0.0


async def until(condition: Callable[[], object], patience_s: float = 3.0) -> None:
    """Waits until something that happens elsewhere is true.

    Raises:
        TimeoutError: it never was.
    """
    async with asyncio.timeout(patience_s):
        while not condition():  # noqa: ASYNC110 (what is waited for is a file, or another thread's doing)
            await asyncio.sleep(0.01)


@pytest.fixture(scope="session")
def edge_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A uvloop in a thread of its own: what edges run on in production."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.2), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.close()


async def serve(server: uvicorn.Server, hot: HotPath) -> None:
    """Serves until the server is told to end, or abruptly when this is cancelled: an orderly end takes a fifth of a
    second and is a test of its own."""
    try:
        await server.serve()
    finally:
        for listener in server.servers:
            listener.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        hot.pool.close()


@dataclass
class EdgeUnderTest:
    """A running edge. The home datacenter is the only one with weight until a test says otherwise."""

    client: Client
    services: Services
    hot: HotPath
    directory: Directory
    holder: TableHolder
    outbox: Outbox
    open_requests: OpenRequests
    metrics: Metrics
    server: uvicorn.Server
    ports: dict[str, int]
    principal: Principal

    def route_to(self, **weights: int) -> None:
        """Takes a snapshot with these weights; `us_east_1=1`."""
        current = self.holder.snapshot
        named = {name.replace("_", "-"): weight for name, weight in weights.items()}
        self.holder.take(snapshot(version=(current.version if current else 0) + 1, weights=named, ports=self.ports,
                                  reason=None if any(named.values()) else "drained for a test"))

    def prefer_home(self) -> None:
        """Both serve; nearly every session goes home first."""
        self.route_to(us_east_1=10_000, eu_north_1=1)

    def frames(self) -> list[UsageOpen | UsageRecord]:
        """What is in the outbox's files."""
        directory = self.outbox.directory
        data = b"".join(segment_path(directory, number).read_bytes() for number in segment_numbers(directory))
        return [decode(stretch.payload) for stretch in scan(data, at_end=True) if stretch.payload is not None]

    def records(self) -> list[UsageRecord]:
        return [frame for frame in self.frames() if isinstance(frame, UsageRecord)]

    async def record(self, patience_s: float = 3.0) -> UsageRecord:
        """The only record, once it is there."""
        await until(self.records, patience_s)
        [record] = self.records()
        return record

    async def until_idle(self, patience_s: float = 3.0) -> None:
        """Waits until no request is open in any datacenter."""
        await until(lambda: not any(self.open_requests.counts().values()), patience_s)


@pytest.fixture
async def home() -> AsyncIterator[Datacenter]:
    """The datacenter that requests go to first."""
    async with listening() as datacenter:
        yield datacenter


@pytest.fixture
async def other() -> AsyncIterator[Datacenter]:
    """The datacenter that requests go to when home fails."""
    async with listening() as datacenter:
        yield datacenter


@asynccontextmanager
async def listening() -> AsyncIterator[Datacenter]:
    datacenter = Datacenter(answers)
    await datacenter.listen()
    try:
        yield datacenter
    finally:
        await datacenter.close()


@pytest.fixture
def limits() -> Limits:
    """Short times, so that a test of a time-out is short; a test module may have its own."""
    return LIMITS


@pytest.fixture
def edge_parts(tmp_path: Path, home: Datacenter, other: Datacenter, limits: Limits) -> Iterator[EdgeUnderTest]:
    """The edge's parts, not serving yet."""
    clock, metrics, holder, opened = SystemClock(), Metrics(), TableHolder(), OpenRequests()
    outbox = Outbox(tmp_path / "outbox", 1 << 20, 1 << 24, metrics)
    key = ids.new_secret("sk_meridian_local")
    principal = Principal(key_id="key_1", team_id="team_1", key_name="test", scopes=[Scope.INFERENCE])
    directory = Directory(known={ids.secret_digest(key): principal})
    health = Health(clock)
    for datacenter in ("us-east-1", "eu-north-1", "ap-south-1"):
        health.succeeded(datacenter)  # it has served before: a plain 500 is not taken for an engine without workers
    services = Services(
        table=holder, keyring=directory, chooser=Chooser(health, metrics), retries=RetryBudget(), outbox=outbox,
        open_requests=opened, clock=clock, limits=limits, metrics=metrics, session_key=session_key,
        admission=NoAdmission(), client_address=lambda peer, _: peer)
    hot = HotPath(services)
    app = build_app(ColdParts(holder, opened, metrics, lambda: "", sorted(path.decode() for path in HOT_ROUTES)))
    server = uvicorn.Server(uvicorn.Config(
        app, host="127.0.0.1", port=0, http=hot_protocol(hot), ws="none", lifespan="off", access_log=False,
        log_config=None, server_header=False, timeout_graceful_shutdown=5))
    yield EdgeUnderTest(Client(0, key, MODEL), services, hot, directory, holder, outbox, opened, metrics, server,
                        {HOME: home.port, OTHER: other.port}, principal)
    outbox.close()


@pytest.fixture
async def edge(edge_parts: EdgeUnderTest, edge_loop: asyncio.AbstractEventLoop) -> AsyncIterator[EdgeUnderTest]:
    """The edge, serving; home has all the weight."""
    edge_parts.route_to(us_east_1=1)
    serving = asyncio.run_coroutine_threadsafe(serve(edge_parts.server, edge_parts.hot), edge_loop)
    await until(lambda: edge_parts.server.started)
    port = edge_parts.server.servers[0].sockets[0].getsockname()[1]
    edge_parts.client = Client(port, edge_parts.client.key, edge_parts.client.model)
    yield edge_parts
    if not edge_parts.server.should_exit:
        serving.cancel()
    with suppress(asyncio.CancelledError, CancelledError):
        await asyncio.wrap_future(serving)
