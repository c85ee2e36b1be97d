"""What is declared, what a fleet shall run, and how a datacenter's traffic moves."""

from collections.abc import Sequence

from sqlalchemy import func
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing.service import prices_of
from control_plane.contracts import topology as documents
from control_plane.contracts.agent_sync import DesiredState
from control_plane.contracts.deployment import DesiredDeployment
from control_plane.contracts.deployment import Pool as PoolDocument
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.contracts.topology import TopologyDocument
from control_plane.errors import NotFound
from control_plane.topology import repository, states
from control_plane.topology.models import Datacenter, Deployment, Fleet, Model, Pool, Region
from control_plane.topology.states import TrafficEvent

PLACES: dict[IdentityKind, tuple[str, type[Fleet] | type[Region]]] = {
    IdentityKind.AGENT: ("fleet", Fleet), IdentityKind.EDGE: ("region", Region)}
MAX_NAMED = 20


def fleet_channel(fleet_id: str) -> str:
    """What a fleet's agent waits for."""
    return f"fleet:{fleet_id}"


async def require_place(session: AsyncSession, kind: IdentityKind, subject: str) -> None:
    """Makes sure that what a machine shall speak for is declared: an agent's fleet, an edge's region.

    Raises:
        NotFound: it is not.
    """
    noun, table = PLACES[kind]
    known = await repository.every(session, table)
    if subject not in known:
        named = ", ".join(list(known)[:MAX_NAMED]) or "none"
        raise NotFound(f"there is no {noun} {subject!r}; there are: {named}", code=f"unknown_{noun}")


def move_traffic(place: Datacenter, event: TrafficEvent, by: str, reason: str) -> None:
    """Moves a datacenter's traffic; whoever calls holds its row and publishes afterwards. A state that is reached by
    degrees begins with none of the traffic, and one that takes traffic keeps its streams.

    Raises:
        states.IllegalTransition: it cannot move so from where it is.
    """
    place.traffic_state = states.move_traffic(place.traffic_state, event)
    place.ramp_percent = 0
    if place.traffic_state in (TrafficState.WARMING, TrafficState.ACTIVE):
        place.evacuate = False
    touch(place, by, reason)


def touch(place: Datacenter, by: str, reason: str) -> None:
    """Notes who changed a datacenter, when and why."""
    place.generation += 1
    place.changed_by, place.reason = by, reason
    place.changed_at = func.clock_timestamp()


async def replace_pools(session: AsyncSession, deployment_id: str, before: Sequence[Pool],
                        wanted: Sequence[PoolDocument]) -> None:
    """Changes a deployment's pools in place, so that what was observed of a role stays."""
    stored = {pool.role: pool for pool in before}
    for one in wanted:
        pool = stored.pop(one.role, None)
        if pool is None:
            session.add(Pool(deployment_id=deployment_id, **one.model_dump()))
        else:
            pool.replicas, pool.gpus_per_replica = one.replicas, one.gpus_per_replica
            pool.max_inflight = one.max_inflight
    for pool in stored.values():
        await session.delete(pool)


async def declared(session: AsyncSession) -> TopologyDocument:
    """Everything that is declared, as one document."""
    models = await repository.every(session, Model)
    prices = await prices_of(session, {model.price_version for model in models.values()})
    pools = await repository.pools(session)
    return TopologyDocument(
        regions=[documents.RegionDocument(id=region) for region in await repository.every(session, Region)],
        datacenters=[documents.DatacenterDocument(id=place.id, region=place.region_id, weight=place.weight)
                     for place in (await repository.every(session, Datacenter)).values()],
        fleets=[documents.FleetDocument(
            id=fleet.id, datacenter=fleet.datacenter_id, ingress_url=fleet.ingress_url, gpu_type=fleet.gpu_type,
            gpu_total=fleet.gpu_total) for fleet in (await repository.every(session, Fleet)).values()],
        models=[documents.ModelDocument(
            id=model.id, display_name=model.display_name, owned_by=model.owned_by, context_window=model.context_window,
            max_output_tokens=model.max_output_tokens, default_max_tokens=model.default_max_tokens,
            min_datacenters=model.min_datacenters,
            price=documents.PriceDocument(**prices[model.price_version][1].model_dump()),
            details=documents.DetailsDocument(**model.details))
            for model in models.values()],
        deployments=[documents.DeploymentDocument(
            id=one.id, model=one.model_id, fleet=one.fleet_id, engine=one.engine,
            pools=_pool_documents([pool for pool in pools if pool.deployment_id == one.id]))
            for one in (await repository.every(session, Deployment)).values()])


async def desired_state(session: AsyncSession, fleet: Fleet) -> DesiredState:
    """All that a fleet shall run."""
    deployments = await repository.deployments_of(session, fleet.id)
    pools = await repository.pools_of(session, fleet.id)
    models = await repository.models(session, [deployment.model_id for deployment in deployments])
    return DesiredState(generation=fleet.generation, deployments=[
        DesiredDeployment(
            deployment_id=one.id, generation=one.generation, model_id=one.model_id,
            context_window=models[one.model_id].context_window, engine=one.engine,
            pools=_pool_documents([pool for pool in pools if pool.deployment_id == one.id]))
        for one in deployments])


def _pool_documents(pools: Sequence[Pool]) -> list[PoolDocument]:
    return [PoolDocument(role=pool.role, replicas=pool.replicas, gpus_per_replica=pool.gpus_per_replica,
                         max_inflight=pool.max_inflight) for pool in pools]
