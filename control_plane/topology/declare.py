"""Applies a topology document: as a whole, once, and without effect when nothing in it is new."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.audit import service as audit
from control_plane.billing.service import ensure_price
from control_plane.contracts import deployment as contract
from control_plane.contracts import topology as documents
from control_plane.contracts.snapshot import TrafficState
from control_plane.contracts.topology import TopologyDocument
from control_plane.db import notify
from control_plane.errors import Conflict, Refusal
from control_plane.operations import repository as operations
from control_plane.topology import document as document_rules
from control_plane.topology import repository
from control_plane.topology.document import Stored
from control_plane.topology.models import Datacenter, Deployment, Fleet, Model, Pool, Region
from control_plane.topology.service import fleet_channel, replace_pools, touch

MAX_FAULTS_SHOWN = 10


@dataclass(slots=True)
class Rows:
    """All that is declared, by id, pools by deployment; `renewed` are the deployments that their agents must redo."""

    regions: dict[str, Region]
    datacenters: dict[str, Datacenter]
    fleets: dict[str, Fleet]
    models: dict[str, Model]
    deployments: dict[str, Deployment]
    pools: dict[str, list[Pool]]
    renewed: dict[str, Deployment] = field(default_factory=dict)


async def apply(session: AsyncSession, document: TopologyDocument, actor: str) -> list[str]:
    """Stores what the document declares; the names of what changed, nothing if it was all there.

    Raises:
        Refusal: the document contradicts itself or what is stored; the message names each fault.
        Conflict: a price version exists with other numbers, or an open operation has what would change to itself.
    """
    await repository.lock_document(session)
    rows = await _load(session)
    faults = document_rules.faults(document, _stored(rows))
    if faults:
        raise Refusal("; ".join(faults[:MAX_FAULTS_SHOWN]), code="bad_topology")
    changed = [f"region:{one.id}" for one in document.regions if await repository.add_region(session, one.id)]
    changed += _apply_datacenters(session, document.datacenters, rows, actor)
    await session.flush()
    changed += _apply_fleets(session, document.fleets, rows)
    changed += await _apply_models(session, document.models, rows)
    await session.flush()
    await _apply_deployments(session, document.deployments, rows)
    changed += await _reissue(session, rows)
    await _check_unclaimed(session, changed)
    await session.flush()
    if changed:
        audit.record(session, actor=actor, action="topology.apply", target="topology", after={"changed": changed})
    return changed


async def _check_unclaimed(session: AsyncSession, changed: Sequence[str]) -> None:
    """Refuses to change what an open operation changes, or whose traffic it moves: each would undo the other. Claims
    are made with the datacenters held, as they are here, and what changed is named as it is claimed."""
    for one in await operations.claimants(session, changed):
        claimed = sorted({*changed} & {*await operations.claims(session, one.id)})
        raise Conflict(f"{', '.join(claimed)} cannot change now: a {one.kind.value} of {one.subject} is under way, "
                       f"{one.id}; wait for it or cancel it first", code="operation_open")


def _apply_datacenters(session: AsyncSession, wanted: Sequence[documents.DatacenterDocument], rows: Rows,
                       actor: str) -> list[str]:
    changed = []
    for one in wanted:
        place = rows.datacenters.get(one.id)
        if place is None:
            session.add(Datacenter(
                id=one.id, region_id=one.region, traffic_state=TrafficState.ACTIVE, weight=one.weight, generation=1,
                changed_by=actor, reason="declared"))
        elif place.weight != one.weight:
            place.weight = one.weight
            touch(place, actor, "declared")
        else:
            continue
        changed.append(f"datacenter:{one.id}")
    return changed


def _apply_fleets(session: AsyncSession, wanted: Sequence[documents.FleetDocument], rows: Rows) -> list[str]:
    changed = []
    for one in wanted:
        fleet = rows.fleets.get(one.id)
        facts = {"ingress_url": one.ingress_url, "gpu_type": one.gpu_type, "gpu_total": one.gpu_total}
        if fleet is None:
            fleet = rows.fleets[one.id] = Fleet(id=one.id, datacenter_id=one.datacenter, generation=0, **facts)
            session.add(fleet)
        elif not _assign(fleet, facts):
            continue
        changed.append(f"fleet:{one.id}")
    return changed


async def _apply_models(session: AsyncSession, wanted: Sequence[documents.ModelDocument], rows: Rows) -> list[str]:
    changed = []
    for one in wanted:
        await ensure_price(session, one.id, one.price)
        facts = {"display_name": one.display_name, "owned_by": one.owned_by, "context_window": one.context_window,
                 "max_output_tokens": one.max_output_tokens, "default_max_tokens": one.default_max_tokens,
                 "min_datacenters": one.min_datacenters,
                 "price_version": one.price.version,
                 "details": one.details.model_dump(mode="json", exclude_defaults=True)}
        model = rows.models.get(one.id)
        if model is None:
            session.add(Model(id=one.id, **facts))
        else:
            if model.context_window != one.context_window:
                rows.renewed |= {d.id: d for d in rows.deployments.values() if d.model_id == one.id}
            if not _assign(model, facts):
                continue
        changed.append(f"model:{one.id}")
    return changed


async def _apply_deployments(session: AsyncSession, wanted: Sequence[documents.DeploymentDocument], rows: Rows) -> None:
    for one in wanted:
        deployment, pools = rows.deployments.get(one.id), rows.pools.get(one.id, [])
        if deployment is None:
            deployment = Deployment(id=one.id, model_id=one.model, fleet_id=one.fleet, engine=one.engine, generation=0)
            session.add(deployment)
            await session.flush()
        elif deployment.engine == one.engine and _same_pools(pools, one.pools):
            continue
        deployment.engine = one.engine
        await replace_pools(session, one.id, pools, one.pools)
        rows.renewed[one.id] = deployment


async def _reissue(session: AsyncSession, rows: Rows) -> list[str]:
    """Raises the generation of what changed, and of each fleet that must hear of it, once."""
    for deployment in rows.renewed.values():
        deployment.generation += 1
    told = {deployment.fleet_id for deployment in rows.renewed.values()}
    for fleet in rows.fleets.values():
        if fleet.generation == 0 or fleet.id in told:
            fleet.generation += 1
            await notify(session, fleet_channel(fleet.id))
    return [f"deployment:{deployment_id}" for deployment_id in rows.renewed]


async def _load(session: AsyncSession, lock: bool = True) -> Rows:
    datacenters = await repository.every(session, Datacenter, lock)
    fleets = await repository.every(session, Fleet, lock)
    pools: dict[str, list[Pool]] = {}
    for pool in await repository.pools(session):
        pools.setdefault(pool.deployment_id, []).append(pool)
    return Rows(
        regions=await repository.every(session, Region), datacenters=datacenters, fleets=fleets,
        models=await repository.every(session, Model), deployments=await repository.every(session, Deployment, lock),
        pools=pools)


def _stored(rows: Rows) -> Stored:
    return Stored(
        regions=frozenset(rows.regions),
        region_of_datacenter={place.id: place.region_id for place in rows.datacenters.values()},
        datacenter_of_fleet={fleet.id: fleet.datacenter_id for fleet in rows.fleets.values()},
        models=frozenset(rows.models),
        place_of_deployment={one.id: (one.model_id, one.fleet_id) for one in rows.deployments.values()})


def _assign(row: Fleet | Model, facts: Mapping[str, object]) -> bool:
    """Sets what differs; whether anything did."""
    changed = {name: value for name, value in facts.items() if getattr(row, name) != value}
    for name, value in changed.items():
        setattr(row, name, value)
    return bool(changed)


def _same_pools(stored: Sequence[Pool], wanted: Sequence[contract.Pool]) -> bool:
    return {(pool.role, pool.replicas, pool.gpus_per_replica, pool.max_inflight) for pool in stored} == {
        (pool.role, pool.replicas, pool.gpus_per_replica, pool.max_inflight) for pool in wanted}
