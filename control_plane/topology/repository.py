"""SQL of the topology slice."""

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts.snapshot import TrafficState
from control_plane.db import Base
from control_plane.topology.models import Datacenter, Deployment, Fleet, Model, Pool, Region

Row = TypeVar("Row", bound=Base)

APPLY_LOCK = 7_263_410_002


async def lock_document(session: AsyncSession) -> None:
    """Lets one topology document be applied at a time; released when the transaction ends."""
    await session.execute(select(func.pg_advisory_xact_lock(APPLY_LOCK)))


async def every(session: AsyncSession, table: type[Row], lock: bool = False) -> dict[str, Row]:
    """All rows of a table of declared things by id, locked in id order when asked to. Declarations are written by
    people: there are hundreds, not millions."""
    query = select(table).order_by(*table.__mapper__.primary_key)
    if lock:
        query = query.with_for_update(key_share=True)
    rows = (await session.execute(query.execution_options(populate_existing=True))).scalars().all()
    return {str(row.__mapper__.primary_key_from_instance(row)[0]): row for row in rows}


async def pools(session: AsyncSession) -> Sequence[Pool]:
    return (await session.execute(select(Pool).order_by(Pool.deployment_id, Pool.role))).scalars().all()


async def lock_datacenters(session: AsyncSession) -> dict[str, Datacenter]:
    """All datacenters, held in id order until the transaction ends: the scope of every safety rule."""
    return await every(session, Datacenter, lock=True)


async def datacenter(session: AsyncSession, datacenter_id: str) -> Datacenter | None:
    return await session.get(Datacenter, datacenter_id)


async def fleet(session: AsyncSession, fleet_id: str) -> Fleet | None:
    return await session.get(Fleet, fleet_id)


async def lock_fleet(session: AsyncSession, fleet_id: str) -> Fleet | None:
    """The fleet, held until the transaction ends: its lease, its reports and its commands change one at a time."""
    query = select(Fleet).where(Fleet.id == fleet_id).with_for_update(key_share=True)
    return (await session.execute(query.execution_options(populate_existing=True))).scalar_one_or_none()


async def deployments_of(session: AsyncSession, fleet_id: str) -> Sequence[Deployment]:
    return (await session.execute(
        select(Deployment).where(Deployment.fleet_id == fleet_id).order_by(Deployment.id))).scalars().all()


async def pools_of(session: AsyncSession, fleet_id: str) -> Sequence[Pool]:
    """The pools of a fleet's deployments."""
    return (await session.execute(
        select(Pool).join(Deployment, Deployment.id == Pool.deployment_id).where(Deployment.fleet_id == fleet_id)
        .order_by(Pool.deployment_id, Pool.role))).scalars().all()


async def models(session: AsyncSession, model_ids: Sequence[str]) -> dict[str, Model]:
    rows = (await session.execute(select(Model).where(Model.id.in_(model_ids)))).scalars().all()
    return {row.id: row for row in rows}


async def add_region(session: AsyncSession, region_id: str) -> bool:
    """Stores a region; false if it is there."""
    statement = insert(Region).values(id=region_id).on_conflict_do_nothing().returning(Region.id)
    return (await session.execute(statement)).scalar_one_or_none() is not None


async def moving_datacenters(session: AsyncSession) -> set[str]:
    """Datacenters whose traffic is on its way somewhere."""
    states = (TrafficState.DRAINING, TrafficState.WARMING, TrafficState.RECOVERING)
    return set((await session.execute(select(Datacenter.id).where(Datacenter.traffic_state.in_(states)))).scalars())


async def routing_rows(session: AsyncSession) -> dict[str, Sequence[Any]]:
    """What a snapshot is built from, as plain columns: always as the database has it now."""
    wanted = select(Pool.deployment_id, func.sum(Pool.replicas).label("replicas")).group_by(
        Pool.deployment_id).subquery()
    return {
        "datacenters": (await session.execute(select(
            Datacenter.id, Datacenter.region_id, Datacenter.traffic_state, Datacenter.weight, Datacenter.ramp_percent,
            Datacenter.evacuate))).all(),
        "models": (await session.execute(select(
            Model.id, Model.display_name, Model.created_at, Model.owned_by, Model.context_window,
            Model.max_output_tokens, Model.default_max_tokens, Model.price_version, Model.details))).all(),
        "deployments": (await session.execute(
            select(Deployment.id, Deployment.model_id, Deployment.fleet_id, Fleet.datacenter_id, Fleet.ingress_url,
                   Deployment.phase, Deployment.facts, Deployment.share_permille,
                   func.coalesce(wanted.c.replicas, 0).label("replicas"))
            .join(Fleet, Fleet.id == Deployment.fleet_id)
            .outerjoin(wanted, wanted.c.deployment_id == Deployment.id))).all(),
    }
