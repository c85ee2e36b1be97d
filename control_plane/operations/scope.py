"""What operations look at, read in one transaction: datacenters, who serves what in them, and who was heard from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts import deployment as contract
from control_plane.contracts.agent_sync import CommandKind, DeploymentPhase, requests_inside
from control_plane.contracts.operations import OperationKind, RolloutOrder, ShiftOrder
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations import repository
from control_plane.operations.facts import DeploymentFacts, EdgeFacts, FleetFacts, ProbeFacts
from control_plane.operations.freezing import standing_still
from control_plane.operations.models import Command, Operation
from control_plane.operations.safety import Provider
from control_plane.routing import repository as routing
from control_plane.routing.models import Edge
from control_plane.topology import repository as topology
from control_plane.topology.models import Datacenter, Deployment, Model, Pool
from control_plane.topology.states import ROUTABLE, effective_weight

LEAVING = frozenset({OperationKind.DRAIN, OperationKind.FAILOVER})
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
    """A deployment, and its pools."""

    row: Deployment
    pools: tuple[Pool, ...]

    @property
    def replicas(self) -> int:
        """Those that it shall have."""
        return sum(pool.replicas for pool in self.pools)

    @property
    def serves(self) -> bool:
        """Whether edges send requests to it while its datacenter takes any."""
        return self.row.phase in ROUTABLE and self.replicas > 0 and self.row.share_permille > 0


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything as of `now`. `leaving` are the datacenters that an open drain or failover takes away, `required` is
    how many each model must keep, `frozen` says why automation stands still, empty if it does not."""

    now: datetime
    datacenters: dict[str, Datacenter]
    fleets: tuple[FleetRow, ...]
    deployments: tuple[DeploymentRow, ...]
    edges: tuple[Edge, ...]
    leaving: frozenset[str]
    required: Mapping[str, int] = field(default_factory=dict)
    frozen: str = ""

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
    pools: dict[str, list[Pool]] = {}
    for pool in await topology.pools(session):
        pools.setdefault(pool.deployment_id, []).append(pool)
    now = await repository.now(session)
    return Scope(
        now=now,
        datacenters=datacenters,
        fleets=tuple(FleetRow(*row) for row in await repository.fleets(session)),
        deployments=tuple(DeploymentRow(row, tuple(pools.get(row.id, ())))
                          for row in await repository.deployments(session)),
        edges=tuple(await routing.edges(session)),
        leaving=frozenset(one.datacenter_id for one in await repository.open_operations(session)
                          if one.kind in LEAVING and one.datacenter_id is not None),
        required={model.id: model.min_datacenters for model in (await topology.every(session, Model)).values()},
        frozen=standing_still(await repository.automation(session), now))


def providers(scope: Scope, without: Collection[str] = ()) -> dict[str, list[Provider]]:
    """Each model's datacenters, as the safety rules see them; the deployments of `without` are taken for gone."""
    fleets = {fleet.id: fleet for fleet in scope.fleets}
    held: dict[tuple[str, str], list[DeploymentRow]] = {}
    for one in scope.deployments:
        if one.row.id in without:
            continue
        held.setdefault((one.row.model_id, fleets[one.row.fleet_id].datacenter_id), []).append(one)
    found: dict[str, list[Provider]] = {}
    for (model_id, datacenter_id), deployments in sorted(held.items()):
        serving = [one for one in deployments if one.serves]
        found.setdefault(model_id, []).append(Provider(
            datacenter_id=datacenter_id,
            active=scope.datacenters[datacenter_id].traffic_state is TrafficState.ACTIVE,
            leaving=datacenter_id in scope.leaving,
            routable=bool(serving),
            observed=any(fleets[one.row.fleet_id].lease_live for one in serving),
            heard_age_s=_heard_age_s(scope, [fleets[one.row.fleet_id] for one in serving])))
    return found


def _heard_age_s(scope: Scope, fleets: Sequence[FleetRow]) -> float | None:
    """Since the newest report of any of them."""
    heard = [fleet.observed_at for fleet in fleets if fleet.observed_at is not None]
    return (scope.now - max(heard)).total_seconds() if heard else None


def edge_facts(edges: Sequence[Edge], datacenter_id: str | None) -> tuple[EdgeFacts, ...]:
    """What edges said of a datacenter."""
    return tuple(EdgeFacts(
        id=edge.id, seen_at_s=edge.last_seen_at.timestamp(), acked=(edge.acked_lineage, edge.acked_version),
        nack=edge.nack_error, open_requests=int(edge.open_requests.get(datacenter_id or "", 0))) for edge in edges)


def fleet_facts(scope: Scope, operation: Operation, commands: Sequence[Command]) -> tuple[FleetFacts, ...]:
    """What the agents of the operation's datacenter said."""
    ordered = {command.fleet_id: command.status for command in commands if command.kind is CommandKind.DRAIN}
    return tuple(FleetFacts(
        id=fleet.id, lease_live=fleet.lease_live,
        observed_at_s=fleet.observed_at.timestamp() if fleet.observed_at else None,
        inflight=_inflight(scope, fleet.id), unready=_unready(scope, fleet.id, operation.forced),
        command=ordered.get(fleet.id)) for fleet in scope.fleets_in(operation.datacenter_id or ""))


def order_of(operation: Operation) -> ShiftOrder | RolloutOrder | None:
    """What a shift or rollout was asked to do."""
    if operation.kind is OperationKind.SHIFT:
        return ShiftOrder(**operation.arguments)
    return RolloutOrder(**operation.arguments) if operation.kind is OperationKind.ROLLOUT else None


def deployment_facts(scope: Scope, operation: Operation, claimed: Sequence[str],
                     commands: Sequence[Command]) -> tuple[DeploymentFacts, ...]:
    """The deployments that an operation claims, in the order of their ids."""
    fleets = {fleet.id: fleet for fleet in scope.fleets}
    return tuple(_deployment_facts(scope, one, fleets[one.row.fleet_id], commands)
                 for one in scope.deployments if f"deployment:{one.row.id}" in claimed)


def _deployment_facts(scope: Scope, one: DeploymentRow, fleet: FleetRow,
                      commands: Sequence[Command]) -> DeploymentFacts:
    row, place = one.row, scope.datacenters[fleet.datacenter_id]
    probes = [command for command in commands
              if command.kind is CommandKind.PROBE and command.deployment_id == row.id]
    newest = max(probes, key=lambda command: command.round, default=None)
    return DeploymentFacts(
        id=row.id, model_id=row.model_id, fleet_id=row.fleet_id, datacenter_id=place.id,
        weight=effective_weight(place.traffic_state, place.weight, place.ramp_percent),
        share_permille=row.share_permille, generation=row.generation, observed_generation=row.observed_generation,
        phase=row.phase, load=requests_inside(row.inflight, row.queued),
        lease_live=fleet.lease_live, unready=unready(one), engine=row.engine,
        pools=tuple(contract.Pool(role=pool.role, replicas=pool.replicas, gpus_per_replica=pool.gpus_per_replica,
                                  max_inflight=pool.max_inflight) for pool in one.pools),
        probe=ProbeFacts(newest.round, newest.status, newest.result) if newest else None, queued=row.queued,
        message=row.message)


def _of(scope: Scope, fleet_id: str) -> list[DeploymentRow]:
    return [one for one in scope.deployments if one.row.fleet_id == fleet_id]


def _inflight(scope: Scope, fleet_id: str) -> int | None:
    """Requests inside a fleet's engines; null when a deployment that may hold some could not be read."""
    counts = [requests_inside(one.row.inflight, one.row.queued) for one in _of(scope, fleet_id)
              if one.row.phase not in (None, *WITHOUT_REQUESTS)]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _unready(scope: Scope, fleet_id: str, forced: bool) -> str:
    """Which deployments are not ready at their generation, in words; force lets degraded ones pass."""
    enough = ROUTABLE if forced else {DeploymentPhase.READY}
    faults = [unready(one, enough) for one in _of(scope, fleet_id) if one.replicas > 0]
    return ", ".join(fault for fault in faults if fault)


def unready(one: DeploymentRow, enough: Collection[DeploymentPhase] = (DeploymentPhase.READY,)) -> str:
    """Why a deployment is not ready at its generation, in words; empty when it is."""
    row = one.row
    if row.phase in enough and (row.observed_generation or 0) >= row.generation:
        return ""
    if row.phase is None:
        return f"{row.id} is never observed"
    return f"{row.id} is {row.phase.value} at generation {row.observed_generation} of {row.generation}"
