"""Edges: the product's snapshot client, choice, evidence, usage outbox and shipper on a simulated machine; and the
requests that clients send them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec

from control_plane.contracts import ids
from control_plane.contracts.signing import VerifyKey
from control_plane.contracts.usage import Attempt, MeterSource, Outcome, UsageBatch, UsageRecord
from edge_api.auth import Keyring
from edge_api.hot.services import OutboxFull
from edge_api.hot.settle import RequestJournal
from edge_api.hot.usage import NOTHING_DELIVERED, Counts
from edge_api.identity import Identity
from edge_api.metering.frames import decode, encode, scan
from edge_api.metering.recovery import open_outbox
from edge_api.metering.shipped import ShippedSegments
from edge_api.metering.shipper import Shipper
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.quality.evidence import Evidence
from edge_api.quality.minutes import Minutes
from edge_api.routing.choose import Chooser
from edge_api.routing.health import Health
from edge_api.routing.table import Route, RoutedModel
from edge_api.routing.votes import Sight
from edge_api.routing.watch import Change, Result, Watch
from edge_api.snapshot.client import SyncClient
from edge_api.snapshot.holder import TableHolder
from edge_api.snapshot.store import SnapshotStore
from tests.simulation.disk import Disk, Place
from tests.simulation.fleets import Engine
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Network
from tests.simulation.process import InOrder, Process, SkewedClock
from tests.simulation.replicas import POISON
from tests.simulation.story import Story

SEGMENT_BYTES, OUTBOX_BYTES, KEPT_S = 4_096, 1_000_000, 3_600.0
PROBE_EVERY_S, PROBE_TIMEOUT_S = 1.0, 2.0
MAX_ATTEMPTS = 4
TOKENS_PER_S = 20.0


@lru_cache(maxsize=1)
def metrics() -> Metrics:
    """One set of figures for all simulated edges: nobody reads them here."""
    return Metrics()


@dataclass
class Request:
    """A client's request, as the client sees it. `done`: it saw the end. `broken`: the connection ended without one."""

    id: UUID
    model_id: str
    session: str
    tokens: int
    patience_s: float
    received: int = 0
    done: bool = False
    broken: bool = False
    refused: bool = False


@dataclass
class Clients:
    """Owns the truth about requests: all that were sent, and by which machine each was journalled."""

    requests: dict[UUID, Request] = field(default_factory=dict)
    opened: dict[UUID, str] = field(default_factory=dict)
    excused: set[UUID] = field(default_factory=set)


@dataclass
class Machine:
    """Where an edge runs: its disk outlives its boots. `acked` is the newest version that it told of."""

    name: str
    region: str
    disk: Disk = field(default_factory=Disk)
    process: "Edge | None" = None
    taken: tuple[int, int] = (0, 0)


class _Prober:
    """What a prober tells of its frontends."""

    fresh_s = PROBE_TIMEOUT_S + 4 * PROBE_EVERY_S

    def __init__(self, watches: dict[Any, tuple[str, Watch]]) -> None:
        self._watches = watches

    def sights(self) -> list[Sight]:
        return [Sight(place, watch) for place, watch in self._watches.values()]


class _Grant:
    def settle(self, tokens: int, nusd: int) -> None:
        """Limits are simulated elsewhere."""


class Link:
    """An edge's way up. What is shipped must be durable at that moment: it is looked for on the disk."""

    def __init__(self, upward: Any, identity: Identity, machine: Machine, story: Story) -> None:
        self._upward, self._machine, self._story = upward, machine, story
        self.identity = identity

    async def post(self, path: str, content: bytes, deadline_s: float) -> Any:
        if path == "/edge/v1/usage":
            for frame in msgspec.json.decode(content, type=UsageBatch).frames:
                data = encode(frame)
                self._story.require(
                    any(0 <= file.data.find(data) <= file.synced - len(data)
                        for file in self._machine.disk.files.values()),
                    "what is shipped is durable", f"{self._machine.name} ships {frame.request_id} before it is synced")
        answer = await self._upward.post(path, content, deadline_s)
        if path == "/edge/v1/usage" and b"duplicate" in answer.content:
            self._story.reach("usage was shipped twice and stored once")
        return answer


class Edge(Process):
    """One boot of an edge."""

    def __init__(self, machine: Machine, story: Story, loop: VirtualLoop, network: Network, chance: Random,
                 clock: SkewedClock, keys: list[VerifyKey], upward: Callable[[Process], Any],
                 engines: dict[str, Engine], clients: Clients) -> None:
        super().__init__(machine.name, story, loop)
        self.machine, self.network, self.chance, self.clock = machine, network, chance, clock
        self.engines, self.clients = engines, clients
        unused: Any = None
        link: Any = Link(upward(self), Identity(machine.name, machine.region, unused, keys), machine, story)
        root: Any = Place(machine.disk, "")
        boot_id = ids.new_id("boot")
        self.holder, self.health, self.open_requests = TableHolder(), Health(clock), OpenRequests()
        self.chooser = Chooser(self.health, metrics(), self.open_requests.by_deployment)
        store = SnapshotStore(root / "snapshot.json")
        if (kept := store.load(keys)) is not None:
            self.holder.take(kept)
            self.note_taken("after a restart")
        kept = ShippedSegments(root / "outbox" / "shipped", KEPT_S, OUTBOX_BYTES, clock)
        self.outbox = open_outbox(root / "outbox", SEGMENT_BYTES, OUTBOX_BYTES, clock, metrics(), kept=kept)
        self.services: Any = SimpleNamespace(outbox=self.outbox, clock=clock, metrics=metrics(), judge=None)
        minutes = Minutes(clock)
        shipper = Shipper(self.outbox, link, boot_id, clock, metrics(), minutes.note, kept)
        keyring = Keyring(link, unused, clock, metrics(), 10, 60.0)
        self.sync = SyncClient(link, self.holder, store, keyring, self.open_requests, boot_id, 4.0, metrics(),
                               on_lineage=shipper.ship_again)
        self._watches: dict[Any, tuple[str, Watch]] = {}
        self.sync.evidence = Evidence(
            clock, self.holder, self.health, _Prober(self._watches), minutes,  # type: ignore[arg-type]
            streams=self.open_requests.counts, sessions=dict)
        self.moves: dict[str, InOrder] = {}
        for work in (self.sync.run(), self.outbox.run(), shipper.run(), self._probe()):
            self.spawn(work)

    def note_taken(self, how: str) -> None:
        """A snapshot is in use: never a poisoned one, and never one that is older."""
        taken = self.holder.snapshot
        assert taken is not None
        version = (taken.lineage, taken.version)
        self.story.require(taken.built_at_s != POISON, "no poisoned snapshot is taken", f"{self.name} took {version}")
        if how != "after a restart":
            self.story.require(version >= self.machine.taken, "no snapshot version falls",
                               f"{self.name} went from {self.machine.taken} to {version}")
        self.machine.taken = version

    # requests

    async def handle(self, request: Request) -> None:
        """Serves a request as the hot path does: journal, choose, send, go on elsewhere when it breaks, settle."""
        table = self.holder.current
        model = table.models.get(request.model_id) if table else None
        if model is None:
            request.refused = True
            return
        journal = self._journal(request, model)
        try:
            journal.open()
        except OutboxFull:
            request.refused = True
            return
        self.clients.opened[request.id] = self.name
        attempts: list[Attempt] = []
        outcome = await self._attempts(request, attempts)
        counts = NOTHING_DELIVERED if not request.received else Counts(
            10, 0, request.received, 0, MeterSource.TOKEN_IDS)
        journal.settle(outcome, counts, 200 if request.received else 502, attempts)
        await asyncio.sleep(0.001)
        request.done, request.broken = outcome is Outcome.COMPLETED, outcome is not Outcome.COMPLETED
        self.story.step()

    def _journal(self, request: Request, model: RoutedModel) -> RequestJournal:
        principal: Any = SimpleNamespace(team_id="team-1", key_id="key-1")
        asked: Any = SimpleNamespace(streamed=False, fields=None)
        grant: Any = _Grant()
        return RequestJournal(self.services, request.id, principal, model, asked, self.clock.monotonic_s(), "chat",
                              request.session, grant)

    async def _attempts(self, request: Request, attempts: list[Attempt]) -> Outcome:
        excluded: frozenset[str] = frozenset()
        until_s = self.loop.now_s + request.patience_s
        while len(attempts) < MAX_ATTEMPTS:
            table = self.holder.current
            model = table.models.get(request.model_id) if table else None
            route = self.chooser.choose(model, request.session, excluded) if model else None
            if route is None:
                break
            self._check_route(route)
            ended = await self._attempt(request, route, until_s)
            attempts.append(Attempt(route.datacenter_id, 200 if request.received else 0, request.received))
            if ended == "whole":
                self.chooser.succeeded(route.datacenter_id)
                if len(attempts) > 1:
                    self.story.reach("a stream went on in another datacenter")
                return Outcome.COMPLETED
            if ended == "gone":
                return Outcome.CLIENT_GONE
            if ended == "refused":
                self.chooser.failed(route.datacenter_id)
            excluded |= {route.datacenter_id}
        return Outcome.UPSTREAM_LOST

    def _check_route(self, route: Route) -> None:
        """By the snapshot itself, and not by the table that was made of it."""
        taken = self.holder.routed
        assert taken is not None
        weights = {place.id: place.weight for place in taken.datacenters}
        shares = {told.deployment_id: told.share_permille for model in taken.models for told in model.routes}
        self.story.require(
            weights[route.datacenter_id] > 0 and shares[route.deployment_id] > 0, "no request goes where none shall",
            f"{self.name} sends one to {route.deployment_id} by version {taken.version}, where it has no weight")

    async def _attempt(self, request: Request, route: Route, until_s: float) -> str:
        """How it ended: ``whole``, ``refused`` (no connection), ``broken`` or ``gone`` (the client left)."""
        self.open_requests.enter(route.datacenter_id, route.deployment_id)
        try:
            return await self._connected(request, route, until_s)
        finally:
            self.open_requests.leave(route.datacenter_id, route.deployment_id)

    async def _connected(self, request: Request, route: Route, until_s: float) -> str:
        engine = self.engines[route.datacenter_id]
        await asyncio.sleep(self.network.delay_s())
        if self.network.is_cut(self.name, route.datacenter_id):
            await asyncio.sleep(PROBE_TIMEOUT_S)
            return "refused"
        if not engine.serves(route.deployment_id):
            return "refused" if not engine.alive else "broken"
        key, ended = object(), asyncio.Event()
        inside = engine.inside.setdefault(route.deployment_id, {})
        inside[key] = ended.set
        self.moves.setdefault(route.datacenter_id, InOrder()).add(ended)
        try:
            return await self._stream(request, route, ended, until_s)
        finally:
            self.moves[route.datacenter_id].discard(ended)
            inside.pop(key, None)

    async def _stream(self, request: Request, route: Route, ended: asyncio.Event, until_s: float) -> str:
        while request.received < request.tokens:
            left = request.tokens - request.received
            part = min(left, 1 + int(left * self.chance.random()))
            try:
                async with asyncio.timeout(part / TOKENS_PER_S):
                    await ended.wait()
                return "broken"
            except TimeoutError:
                if self.loop.now_s > until_s:
                    return "gone"
                if not self.network.is_cut(self.name, route.datacenter_id):
                    request.received += part
        return "whole"

    # probes

    async def _probe(self) -> None:
        """As the prober: asks every frontend of the table, and draws the same conclusions by the product's `Watch`."""
        late: list[tuple[float, Any, float, Result]] = []
        version = (0, 0)
        while True:
            await asyncio.sleep(PROBE_EVERY_S * (0.95 + 0.1 * self.chance.random()))
            self.story.step()
            now_s, sent_s = self.loop.now_s, self.clock.monotonic_s()
            taken = self.holder.snapshot
            if taken is not None and (taken.lineage, taken.version) != version:
                version = (taken.lineage, taken.version)
                self.note_taken("from the control plane")
                self._follow()
            for address, (place, _) in list(self._watches.items()):
                if self.network.is_cut(self.name, place):
                    late.append((now_s + PROBE_TIMEOUT_S, address, sent_s, Result.FAILED))
                else:
                    self._took(address, sent_s, Result.GOOD if self.engines[place].alive else Result.REFUSED)
            due, late = [one for one in late if one[0] <= now_s], [one for one in late if one[0] > now_s]
            for _, address, at_s, result in due:
                self._took(address, at_s, result)

    def _follow(self) -> None:
        assert self.holder.current is not None
        routes = {route.address: route.datacenter_id
                  for model in self.holder.current.models.values() for route in model.routes}
        for address in [known for known in self._watches if known not in routes]:
            del self._watches[address]
            self.health.forget(address)
        for address, place in routes.items():
            self._watches.setdefault(address, (place, Watch()))

    def _took(self, address: Any, sent_s: float, result: Result) -> None:
        if address not in self._watches:
            return
        place, watch = self._watches[address]
        change = watch.take(sent_s, result)
        if change is Change.RECOVERED:
            self.health.recovered(address, place)
        elif change is Change.LOST:
            self.story.note(f"lost {place}")
            self.health.lost(address)
        if watch.is_lost and (watch.was_refused or any(
                other.is_witness_for(watch) for _, other in self._watches.values())):
            for ended in list(self.moves.get(place, ())):
                ended.set()


def frames_in(disk: Disk) -> set[tuple[bool, UUID]]:
    """The usage frames on a disk that are whole: whether each is a record, and its request."""
    found = set()
    for name, file in disk.files.items():
        if not name.endswith(".seg"):
            continue
        for _, _, payload in scan(bytes(file.data), at_end=True):
            if payload is not None:
                frame = decode(payload)
                found.add((isinstance(frame, UsageRecord), frame.request_id))
    return found
