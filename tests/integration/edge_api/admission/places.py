"""What admission's tests stand on: edges that share a Valkey which can be stopped, and a counter that lends money."""

import asyncio
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control_plane.contracts.clock import SystemClock
from control_plane.contracts.money import (
    LeaseAsk,
    LeaseGrant,
    MoneyLeaseAnswer,
    MoneyLeaseRequest,
    MoneyRefusalReason,
)
from control_plane.contracts.signing import SigningKey, claimed_identity
from edge_api.admission.build import AdmissionParts, build_admission
from edge_api.errors import Refusal
from edge_api.hot.services import Grant, Need
from edge_api.identity import ControlPlaneLink, Identity
from edge_api.metering.frames import Position
from infra.local import child, valkey
from infra.local.ports import free_port
from infra.local.valkey import Valkey
from tests import throwaway
from tests.integration.edge_api.control_plane import listening

BEGIN = Position(1, 0)


@dataclass
class Edge:
    """One edge's admission. `written` and `shipped` are its outbox, as far as admission sees it."""

    parts: AdmissionParts
    registry: CollectorRegistry
    link: ControlPlaneLink
    written: Position = BEGIN
    shipped: Position = BEGIN
    refused: Counter[str] = field(default_factory=Counter)

    async def admit(self, need: Need) -> Grant:
        return self.parts.gate.admit_now(need) or await self.parts.gate.admit(need)

    async def try_admit(self, need: Need) -> Grant | None:
        """None: refused, and counted by what stood in the way."""
        try:
            return await self.admit(need)
        except Refusal as refused:
            self.refused[str(refused.metadata.get("limit", refused.fault.code))] += 1
            return None

    def figure(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"meridian_edge_{name}", labels) or 0.0


@asynccontextmanager
async def edge(valkey_url: str | None, boot_id: str = "boot_1", edges: int = 1, control_plane_url: str | None = None,
               dies: bool = False, name: str = "edge_1") -> AsyncIterator[Edge]:
    """An edge's admission with its background tasks. `dies`: it ends as after kill -9, saying nothing to anybody."""
    clock, registry = SystemClock(), CollectorRegistry()
    link = ControlPlaneLink([control_plane_url] if control_plane_url else [], clock)
    if control_plane_url:
        link.use(Identity(name, "us-east-1", SigningKey.generate(), []))
    place: list[Edge] = []
    parts = build_admission(
        valkey_url, link, boot_id, clock, lambda: edges, lambda: place[0].written if place else BEGIN,
        lambda: place[0].shipped if place else BEGIN, registry)
    place.append(Edge(parts, registry, link))
    if valkey_url is not None:
        await parts.line.probe()
    tasks = [asyncio.ensure_future(task()) for task in parts.tasks().values()]
    try:
        yield place[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not dies:
            await parts.aclose()
        await parts.line.aclose()
        await link.aclose()


@dataclass
class OwnValkey:
    """A Valkey server of one test, to be stopped, killed and started again."""

    server: Valkey
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return self.server.url

    def stop(self) -> None:
        """It answers nobody any more, and says so to nobody."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """The same port, with what it had on disk."""
        spec = valkey.prepare(self.server, throwaway.RIGHTS)
        self.process = child.start(spec)
        throwaway.run(valkey.wait_ready(self.server))

    async def uses(self, kind: str) -> int:
        """What is counted for the limits of a kind, all slots together."""
        async with Redis.from_url(self.url) as client:
            return await counted(client, kind)


@contextmanager
def own_valkey() -> Iterator[OwnValkey]:
    """A server of its own."""
    with throwaway.directory() as place:
        server = replace(Valkey(place / "data", 0, place / "log", "secret"), port=free_port())
        process = child.start(valkey.prepare(server, throwaway.RIGHTS))
        own = OwnValkey(server, process)
        try:
            throwaway.run(valkey.wait_ready(server))
            yield own
        finally:
            if own.process.poll() is None:
                own.go_on()
                own.kill()


async def counted(client: Redis, kind: str) -> int:
    """What Valkey counts for a kind of limit: requests, tokens, or open."""
    total = 0
    for key in await client.keys(f"adm:*:{kind}:*"):
        values = (await client.hgetall(key)).values()
        total += sum(int(value.split()[0]) for value in values)
    return total


class MoneyCounter:
    """Lends one scope's money as the control plane does: what is left is what was neither booked nor lent. `share` is
    the part of what is left that one grant may take beyond what is needed."""

    def __init__(self, balance_nusd: int, share: int = 4) -> None:
        self.balance_nusd, self.share = balance_nusd, share
        self.booked_nusd = 0
        self.open: dict[str, tuple[str, str, int]] = {}
        self.closed: list[str] = []
        self.requests: list[MoneyLeaseRequest] = []
        self.refusal = LeaseGrant(lease_id="", granted_nusd=0, left_nusd=0,
                                  reason=MoneyRefusalReason.INSUFFICIENT_FUNDS)
        self.delay_s, self.status, self.loses_answers = 0.0, 200, 0
        self.url = ""

    @property
    def lent_nusd(self) -> int:
        return sum(amount for _, _, amount in self.open.values())

    @property
    def asks(self) -> int:
        return sum(len(request.open) for request in self.requests)

    async def lease(self, request: Request) -> Response:
        asked = MoneyLeaseRequest.model_validate_json(await request.body())
        edge_id = claimed_identity(request.headers)
        self.requests.append(asked)
        await asyncio.sleep(self.delay_s)
        if self.status != 200:
            return Response(status_code=self.status)
        for lease_id in asked.close:
            self.open.pop(lease_id, None)
            self.closed.append(lease_id)
        if asked.earlier_boots_shipped:
            self.open = {lease_id: lease for lease_id, lease in self.open.items()
                         if lease[0] != edge_id or lease[1] == asked.boot_id}
        answer = MoneyLeaseAnswer(grants=[self._grant(edge_id, asked.boot_id, ask) for ask in asked.open])
        if self.loses_answers:
            self.loses_answers -= 1
            return Response(status_code=503)
        return Response(answer.model_dump_json())

    def _grant(self, edge_id: str, boot_id: str, ask: LeaseAsk) -> LeaseGrant:
        if ask.lease_id in self.open:
            return LeaseGrant(lease_id=ask.lease_id, granted_nusd=self.open[ask.lease_id][2], left_nusd=0)
        left = self.balance_nusd - self.booked_nusd - self.lent_nusd
        if left < ask.at_least_nusd:
            return self.refusal.model_copy(update={"lease_id": ask.lease_id, "left_nusd": max(0, left)})
        granted = max(ask.at_least_nusd, min(ask.want_nusd, left // self.share))
        self.open[ask.lease_id] = (edge_id, boot_id, granted)
        return LeaseGrant(lease_id=ask.lease_id, granted_nusd=granted, left_nusd=left - granted)


@asynccontextmanager
async def money_counter(balance_nusd: int, share: int = 4) -> AsyncIterator[MoneyCounter]:
    """The counter over real HTTP."""
    counter = MoneyCounter(balance_nusd, share)
    app = Starlette(routes=[Route("/edge/v1/money/leases", counter.lease, methods=["POST"])])
    async with listening(app) as counter.url:
        yield counter


