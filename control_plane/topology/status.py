"""The whole fleet in one answer, read in one transaction. What nobody observed is null, never 0."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.agents import repository as agents
from control_plane.agents.models import AgentLease
from control_plane.capacity import service as capacity
from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.operator import (
    Continuation,
    DatacenterStatus,
    DeploymentStatus,
    EdgeStatus,
    FleetStatus,
    PoolStatus,
    StatusView,
)
from control_plane.contracts.override import OverrideView
from control_plane.evidence import service as evidence
from control_plane.operations import freezing
from control_plane.operations import repository as operations
from control_plane.operations import service as operation_service
from control_plane.operations.facts import Pace
from control_plane.routing import repository as routing
from control_plane.routing.lineage import ahead
from control_plane.routing.models import Edge
from control_plane.settings import Settings
from control_plane.topology import repository, served
from control_plane.topology.models import Datacenter, Deployment, Fleet, Pool
from control_plane.topology.states import ROUTABLE, effective_weight

LIVE_FOR = timedelta(seconds=Pace().edge_excused_after_s)

Held = tuple[AgentLease, bool, float]


async def status(session: AsyncSession, settings: Settings) -> StatusView:
    """Everything that `meridian status` shows."""
    now = await operations.now(session)
    lineage, version = await routing.head(session)
    edges = [_edge(edge, now, lineage, version) for edge in await routing.edges(session)]
    fleets = list((await repository.every(session, Fleet)).values())
    deployments = list((await repository.every(session, Deployment)).values())
    pools = await repository.pools(session)
    places = (await repository.every(session, Datacenter)).values()
    serving = _serving(deployments, fleets, places)
    leases = {held[0].fleet_id: held for held in await agents.leases(session)}
    regions = {place.id: place.region_id for place in places}
    return StatusView(
        models=served.models((await capacity.view(session, settings, forecasts=False)).models,
                             await evidence.quality_by_region(session, regions),
                             {one.id: one.inflight for one in deployments}),
        votes=await evidence.votes(session), automation=await freezing.view(session),
        lineage=lineage, snapshot_version=version, as_of=now, edges=edges,
        ahead=list(await ahead(session)),
        datacenters=[_datacenter(place, edges, fleets, deployments, pools, leases, serving) for place in places],
        running_operations=await operation_service.views(session, await operations.open_operations(session)))


def _datacenter(place: Datacenter, edges: Sequence[EdgeStatus], fleets: Sequence[Fleet],
                deployments: Sequence[Deployment], pools: Sequence[Pool], leases: dict[str, Held],
                serving: Sequence[Deployment]) -> DatacenterStatus:
    live = [edge for edge in edges if edge.live]
    mine = [fleet for fleet in fleets if fleet.datacenter_id == place.id]
    fleet_ids = {fleet.id for fleet in mine}
    return DatacenterStatus(
        id=place.id, region=place.region_id, traffic_state=place.traffic_state,
        weight=effective_weight(place.traffic_state, place.weight, place.ramp_percent),
        open_requests=sum(edge.open_requests.get(place.id, 0) for edge in live) if live else None,
        fleets=[_fleet(fleet, leases.get(fleet.id)) for fleet in mine],
        deployments=[_deployment(one, [pool for pool in pools if pool.deployment_id == one.id], serving)
                     for one in deployments if one.fleet_id in fleet_ids])


def _fleet(fleet: Fleet, held: Held | None) -> FleetStatus:
    if held is None:
        return FleetStatus(id=fleet.id, agent=None, epoch=None, lease_live=False, lease_age_s=None)
    lease, live, age_s = held
    return FleetStatus(id=fleet.id, agent=lease.identity, epoch=lease.epoch, lease_live=live, lease_age_s=age_s)


def _deployment(one: Deployment, pools: Sequence[Pool], serving: Sequence[Deployment]) -> DeploymentStatus:
    return DeploymentStatus(
        id=one.id, model=one.model_id, fleet=one.fleet_id, phase=one.phase or DeploymentPhase.PENDING,
        generation=one.generation, observed_generation=one.observed_generation, inflight=one.inflight,
        queued=one.queued, message=one.message if one.phase else "never observed",
        pools=[PoolStatus(role=pool.role, desired_replicas=pool.replicas, ready_replicas=pool.ready_replicas)
               for pool in pools],
        continuation=_continuation(one, serving))


def _serving(deployments: Sequence[Deployment], fleets: Sequence[Fleet],
             places: Iterable[Datacenter]) -> list[Deployment]:
    """The deployments that take new requests, and so streams from elsewhere."""
    active = {place.id for place in places if effective_weight(place.traffic_state, place.weight, place.ramp_percent)}
    fleet_ids = {fleet.id for fleet in fleets if fleet.datacenter_id in active}
    return [one for one in deployments if one.fleet_id in fleet_ids and one.phase in ROUTABLE]


def _continuation(one: Deployment, serving: Sequence[Deployment]) -> Continuation:
    identity = EngineFacts(**one.facts).identity
    others = [EngineFacts(**other.facts) for other in serving
              if other.model_id == one.model_id and other.fleet_id != one.fleet_id]
    equal = [facts for facts in others if identity and facts.identity == identity]
    if not equal:
        return Continuation.NONE
    return Continuation.ALL if any(facts.grammar_url for facts in equal) else Continuation.PLAIN


def _edge(edge: Edge, now: datetime, lineage: int, version: int) -> EdgeStatus:
    """Versions of an older lineage count for nothing."""
    known = edge.acked_version if edge.acked_lineage >= lineage else 0
    return EdgeStatus(
        id=edge.id, region=edge.region, live=now - edge.last_seen_at < LIVE_FOR, release=edge.release,
        acked_version=edge.acked_version, behind=max(version - known, 0), nack=edge.nack_error,
        last_seen_age_s=(now - edge.last_seen_at).total_seconds(), open_requests=edge.open_requests,
        url=edge.url, overrides=[OverrideView(**told) for told in edge.overrides])
