"""What operations look at, read in one transaction: datacenters, who serves what in them, and who was heard from."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.operator import OperationKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations import repository
from control_plane.operations.models import Command, Operation
from control_plane.operations.playbooks import EdgeFacts, FleetFacts
from control_plane.operations.safety import Provider
from control_plane.routing import repository as routing
from control_plane.routing.models import Edge
from control_plane.topology import repository as topology
from control_plane.topology.models import Datacenter, Deployment
from control_plane.topology.states import ROUTABLE

WITHOUT_REQUESTS = (DeploymentPhase.PENDING, DeploymentPhase.GONE)


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A fleet and its agent."""

    id: str
    datacenter_id: str
    lease_live: bool
    observed_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeploymentRow:
    """A deployment, and the replicas that it shall have."""

    row: Deployment
    replicas: int


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything as of `now`. `leaving` are the datacenters that an open drain takes away."""

    now: datetime
    datacenters: dict[str, Datacenter]
    fleets: tuple[FleetRow, ...]
    deployments: tuple[DeploymentRow, ...]
    edges: tuple[Edge, ...]
    leaving: frozenset[str]

    def fleets_in(self, datacenter_id: str) -> list[FleetRow]:
        return [fleet for fleet in self.fleets if fleet.datacenter_id == datacenter_id]

    def models_in(self, datacenter_id: str, wanted: bool = False) -> list[str]:
        """The models that a datacenter holds; with `wanted` only those that are not scaled to zero there."""
        fleets = {fleet.id for fleet in self.fleets_in(datacenter_id)}
        return sorted({one.row.model_id for one in self.deployments
                       if one.row.fleet_id in fleets and (one.replicas > 0 or not wanted)})


async def read_locked(session: AsyncSession) -> Scope:
    """The scope, with every datacenter held in id order: what is decided by it stays true until the commit."""
    datacenters = await topology.lock_datacenters(session)
    return Scope(
        now=await repository.now(session),
        datacenters=datacenters,
        fleets=tuple(FleetRow(*row) for row in await repository.fleets(session)),
        deployments=tuple(DeploymentRow(*row) for row in await repository.deployments(session)),
        edges=tuple(await routing.edges(session)),
        leaving=frozenset(one.datacenter_id for one in await repository.open_operations(session)
                          if one.kind is OperationKind.DRAIN))


def providers(scope: Scope) -> dict[str, list[Provider]]:
    """Each model's datacenters, as the safety rules see them."""
    fleets = {fleet.id: fleet for fleet in scope.fleets}
    held: dict[tuple[str, str], list[DeploymentRow]] = {}
    for one in scope.deployments:
        held.setdefault((one.row.model_id, fleets[one.row.fleet_id].datacenter_id), []).append(one)
    found: dict[str, list[Provider]] = {}
    for (model_id, datacenter_id), deployments in sorted(held.items()):
        serving = [one for one in deployments if one.row.phase in ROUTABLE and one.replicas > 0]
        found.setdefault(model_id, []).append(Provider(
            datacenter_id=datacenter_id,
            active=scope.datacenters[datacenter_id].traffic_state is TrafficState.ACTIVE,
            leaving=datacenter_id in scope.leaving,
            routable=bool(serving),
            observed=any(fleets[one.row.fleet_id].lease_live for one in serving)))
    return found


def edge_facts(edges: Sequence[Edge], datacenter_id: str) -> tuple[EdgeFacts, ...]:
    """What edges said of a datacenter."""
    return tuple(EdgeFacts(
        id=edge.id, seen_at_s=edge.last_seen_at.timestamp(), acked=(edge.acked_lineage, edge.acked_version),
        nack=edge.nack_error, open_requests=int(edge.open_requests.get(datacenter_id, 0))) for edge in edges)


def fleet_facts(scope: Scope, operation: Operation, commands: Sequence[Command]) -> tuple[FleetFacts, ...]:
    """What the agents of the operation's datacenter said."""
    ordered = {command.fleet_id: command.status for command in commands}
    return tuple(FleetFacts(
        id=fleet.id, lease_live=fleet.lease_live,
        observed_at_s=fleet.observed_at.timestamp() if fleet.observed_at else None,
        inflight=_inflight(scope, fleet.id), unready=_unready(scope, fleet.id, operation.forced),
        command=ordered.get(fleet.id)) for fleet in scope.fleets_in(operation.datacenter_id))


def _of(scope: Scope, fleet_id: str) -> list[DeploymentRow]:
    return [one for one in scope.deployments if one.row.fleet_id == fleet_id]


def _inflight(scope: Scope, fleet_id: str) -> int | None:
    """Requests inside a fleet's engines; null when a deployment that may hold some could not be read."""
    counts = [(one.row.inflight, one.row.queued) for one in _of(scope, fleet_id)
              if one.row.phase not in (None, *WITHOUT_REQUESTS)]
    if any(inflight is None or queued is None for inflight, queued in counts):
        return None
    return sum((inflight or 0) + (queued or 0) for inflight, queued in counts)


def _unready(scope: Scope, fleet_id: str, forced: bool) -> str:
    """Which deployments are not ready at their generation, in words; force lets degraded ones pass."""
    enough = ROUTABLE if forced else {DeploymentPhase.READY}
    wanted = [one for one in _of(scope, fleet_id) if one.replicas > 0]
    return ", ".join(
        f"{one.row.id} is {one.row.phase.value if one.row.phase else 'never observed'}"
        + (f" at generation {one.row.observed_generation} of {one.row.generation}" if one.row.phase else "")
        for one in wanted
        if one.row.phase not in enough or (one.row.observed_generation or 0) < one.row.generation)
