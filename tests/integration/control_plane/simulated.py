"""Simulated agents and edges: they hold what real ones hold and speak the real protocol, signed, to a real replica."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from control_plane.contracts.agent_sync import (
    AgentSyncAnswer,
    AgentSyncRequest,
    CommandAck,
    CommandState,
    DeploymentPhase,
    DesiredState,
    ObservedDeployment,
    ObservedPool,
)
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.edge_sync import EdgeSyncAnswer, EdgeSyncRequest, Nack
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.operations import OperationView
from control_plane.contracts.operator import StatusView
from control_plane.contracts.snapshot import Snapshot, TrafficState
from control_plane.contracts.topology import TopologyDocument
from tests.integration.control_plane.replica import MODEL, PRICE, Peer, Replica, running_replica

WEST, EAST = "us-east-1", "eu-north-1"
POLL_S = 0.2
"""Simulated members report more often than they are asked to, so that tests take less time."""

PACE = {"drain_verify_s": 0.2, "ramp_hold_s": 0.05, "flap_wait_s": 0.0, "ack_wait_s": 8.0, "evacuate_wait_s": 2.0,
        "watch_s": 0.2}
"""What takes seconds in production takes fractions of one here."""

POOLS = [{"role": "decode", "replicas": 2}, {"role": "prefill", "replicas": 1}]


def document(*datacenters: str, **changes: Any) -> TopologyDocument:
    """A topology with one fleet and one deployment of the model in each datacenter."""
    places = datacenters or (WEST, EAST)
    model = {"id": MODEL, "display_name": "GLM", "owned_by": "sim", "context_window": 202_752,
             "max_output_tokens": 131_072, "price": PRICE.model_dump(mode="json")}
    return TopologyDocument.model_validate({
        "regions": [{"id": place} for place in places],
        "datacenters": [{"id": place, "region": place} for place in places],
        "fleets": [{"id": f"{place}-a", "datacenter": place, "ingress_url": f"http://127.0.0.1:{9000 + number}",
                    "gpu_type": "H200", "gpu_total": 8} for number, place in enumerate(places)],
        "models": [model],
        "deployments": [{"id": f"{place}-a-glm", "model": MODEL, "fleet": f"{place}-a", "pools": POOLS, "engine": {}}
                        for place in places],
    } | changes)


@dataclass
class SimulatedAgent:
    """One boot of a fleet's agent."""

    replica: Replica
    peer: Peer
    fleet: str
    boot_id: str = "boot-1"
    epoch: int | None = None
    desired: DesiredState | None = None
    phase: DeploymentPhase = DeploymentPhase.READY
    inflight: int | None = 0
    facts: EngineFacts = field(default_factory=EngineFacts)
    drains: bool = True
    acks: dict[str, CommandState] = field(default_factory=dict)
    longest_poll_s: float = POLL_S

    async def post(self, wait_s: float = 0.0) -> httpx.Response:
        """One sync, as it comes back."""
        wanted = self.desired.deployments if self.desired else []
        request = AgentSyncRequest(
            boot_id=self.boot_id, release="0.1.0", epoch=self.epoch,
            seen_generation=self.desired.generation if self.desired else 0,
            deployments=[ObservedDeployment(
                deployment_id=one.deployment_id, observed_generation=one.generation, phase=self.phase,
                facts=self.facts, inflight=self.inflight, queued=0 if self.inflight is not None else None,
                pools=[ObservedPool(role=pool.role, desired_replicas=pool.replicas, ready_replicas=pool.replicas)
                       for pool in one.pools]) for one in wanted],
            acks=[CommandAck(command_id=command, state=state) for command, state in self.acks.items()], wait_s=wait_s)
        return await self.replica.signed(self.peer, "/agent/v1/sync", request.model_dump_json().encode())

    async def sync(self, wait_s: float = 0.0) -> AgentSyncAnswer:
        """One sync that must succeed; the agent takes what it is answered."""
        response = await self.post(wait_s)
        assert response.status_code == 200, response.text
        answer = AgentSyncAnswer.model_validate_json(response.content)
        self.epoch, self.desired = answer.epoch, answer.desired or self.desired
        self.acks = {command.id: self._progress(command.id) for command in answer.commands}
        return answer

    def again(self) -> "SimulatedAgent":
        """The next boot of the same agent."""
        return SimulatedAgent(self.replica, self.peer, self.fleet, boot_id="boot-2", desired=self.desired)

    async def settle(self) -> None:
        """Takes its desired state and reports it."""
        await self.sync()
        await self.sync()

    async def run(self) -> None:
        """Syncs until cancelled, as the real one does; an answer that does not come is asked for again."""
        wait_s = 0.0
        while True:
            response = await self.post(wait_s)
            if response.status_code == 200:
                answer = AgentSyncAnswer.model_validate_json(response.content)
                self.epoch, self.desired = answer.epoch, answer.desired or self.desired
                self.acks = {command.id: self._progress(command.id) for command in answer.commands}
                wait_s = min(answer.next_wait_s, self.longest_poll_s)
            else:
                await asyncio.sleep(0.1)

    def _progress(self, command: str) -> CommandState:
        done = self.drains and self.inflight == 0
        return CommandState.SUCCEEDED if done else self.acks.get(command, CommandState.ACCEPTED)


@dataclass
class SimulatedEdge:
    """One boot of an edge. With `accepts` off it refuses every snapshot that it is sent."""

    replica: Replica
    peer: Peer
    boot_id: str = "boot-1"
    snapshot: Snapshot | None = None
    open_requests: dict[str, int] = field(default_factory=dict)
    accepts: bool = True
    nack: Nack | None = None
    revoked: list[str] = field(default_factory=list)
    revocations_after: int = 0

    async def post(self, wait_s: float = 0.0) -> httpx.Response:
        """One sync, as it comes back."""
        request = EdgeSyncRequest(
            boot_id=self.boot_id, release="0.1.0", acked_lineage=self.snapshot.lineage if self.snapshot else 0,
            acked_version=self.snapshot.version if self.snapshot else 0, nack=self.nack,
            revocations_after=self.revocations_after, open_requests=self.open_requests, wait_s=wait_s)
        return await self.replica.signed(self.peer, "/edge/v1/sync", request.model_dump_json().encode())

    async def sync(self, wait_s: float = 0.0) -> EdgeSyncAnswer:
        """One sync that must succeed; the edge takes what it is answered."""
        response = await self.post(wait_s)
        assert response.status_code == 200, response.text
        return self.take(EdgeSyncAnswer.model_validate_json(response.content))

    def take(self, answer: EdgeSyncAnswer) -> EdgeSyncAnswer:
        """Checks and keeps a snapshot, or refuses it; keeps revocations."""
        if answer.snapshot is not None:
            snapshot = answer.snapshot.open([self.replica.context.signing_key.public])
            if self.accepts:
                self.snapshot, self.nack = snapshot, None
            else:
                self.nack = Nack(lineage=snapshot.lineage, version=snapshot.version, error="poisoned")
        for revocation in answer.revocations:
            self.revoked.append(revocation.digest)
            self.revocations_after = revocation.seq
        return answer

    async def run(self) -> None:
        """Syncs until cancelled, as the real one does."""
        wait_s = 0.0
        while True:
            response = await self.post(wait_s)
            if response.status_code == 200:
                wait_s = min(self.take(EdgeSyncAnswer.model_validate_json(response.content)).next_wait_s, POLL_S)
            else:
                await asyncio.sleep(0.1)

    def weight(self, datacenter: str) -> int:
        """The weight by which this edge gives a datacenter new requests."""
        assert self.snapshot is not None
        return next(place.weight for place in self.snapshot.datacenters if place.id == datacenter)

    def evacuates(self, datacenter: str) -> bool:
        """Whether this edge was told to move a datacenter's streams."""
        return self.snapshot is not None and any(
            place.id == datacenter and place.evacuate for place in self.snapshot.datacenters)


@dataclass
class World:
    """A replica, an agent for each datacenter and two edges; nobody syncs until told to."""

    replica: Replica
    operator: dict[str, str]
    agents: dict[str, SimulatedAgent]
    edges: list[SimulatedEdge]

    async def ask(self, kind: str, datacenter: str, **options: Any) -> httpx.Response:
        """Asks for an operation."""
        headers = self.operator | options.pop("headers", {})
        body = {"kind": kind, "datacenter": datacenter, "reason": "test"} | options
        return await self.replica.client.post("/operator/v1/operations", json=body, headers=headers)

    async def started(self, kind: str, datacenter: str, **options: Any) -> str:
        """The id of an operation that must start."""
        response = await self.ask(kind, datacenter, **options)
        assert response.status_code == 201, response.text
        return str(response.json()["operation"]["id"])

    async def operation(self, operation_id: str) -> OperationView:
        """The operation as an operator sees it."""
        response = await self.replica.client.get(f"/operator/v1/operations/{operation_id}", headers=self.operator)
        assert response.status_code == 200, response.text
        return OperationView.model_validate_json(response.content)

    async def status(self) -> StatusView:
        """What `meridian status` shows."""
        response = await self.replica.client.get("/operator/v1/status", headers=self.operator)
        assert response.status_code == 200, response.text
        return StatusView.model_validate_json(response.content)

    async def traffic(self, datacenter: str) -> TrafficState:
        """A datacenter's traffic state."""
        return next(place.traffic_state for place in (await self.status()).datacenters if place.id == datacenter)

    async def until(self, operation_id: str, reached: Callable[[OperationView], bool],
                    timeout_s: float = 30.0) -> OperationView:
        """The operation once `reached` holds."""
        try:
            async with asyncio.timeout(timeout_s):
                while not reached(view := await self.operation(operation_id)):  # noqa: ASYNC110 - over HTTP
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not reached: {await self.operation(operation_id)}") from None
        return view

    async def ended(self, operation_id: str, timeout_s: float = 30.0) -> OperationView:
        """The operation once it ended."""
        return await self.until(operation_id, lambda view: view.finished_at is not None, timeout_s)

    @asynccontextmanager
    async def running(self, *members: SimulatedAgent | SimulatedEdge) -> AsyncIterator[None]:
        """Lets `members`, by default all, sync in the background."""
        tasks = [asyncio.create_task(member.run()) for member in members or (*self.agents.values(), *self.edges)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def declare(replica: Replica, operator: dict[str, str], wanted: TopologyDocument) -> httpx.Response:
    """Applies a topology document."""
    return await replica.client.put(
        "/operator/v1/topology", content=wanted.model_dump_json(), headers=operator)


async def eventually(holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Waits until `holds`; the simulated members move on by themselves."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - what is waited for is another task's plain data
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running_world(database_url: str, directory: Path, *datacenters: str, edges: int = 2,
                        **settings: Any) -> AsyncIterator[World]:
    """A declared topology whose deployments are ready and whose edges have the newest snapshot."""
    places = datacenters or (WEST, EAST)
    async with AsyncExitStack() as stack:
        settings = PACE | settings
        replica = await stack.enter_async_context(running_replica(database_url, directory, **settings))
        operator = await replica.operator()
        answer = await declare(replica, operator, document(*places))
        assert answer.status_code == 200, answer.text
        agents = {place: SimulatedAgent(replica, await replica.enrolled(IdentityKind.AGENT, f"{place}-a"), f"{place}-a")
                  for place in places}
        fleet = [SimulatedEdge(replica, await replica.enrolled(IdentityKind.EDGE, places[n % len(places)]))
                 for n in range(edges)]
        for agent in agents.values():
            await agent.settle()
        for edge in fleet:
            await edge.sync()
            await edge.sync()
        yield World(replica, operator, agents, fleet)
