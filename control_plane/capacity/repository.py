"""SQL of the capacity slice. Times are the database's.

Samples are written once a report into the row of their minute, and read by ranges of minutes: thirty for what is asked
now, and two hours around this time of day on each of seven days, in slots of ten minutes, for the forecast.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.agents.models import AgentLease, FleetView
from control_plane.capacity.demand import DAYS, SLOT_S, SLOTS_AHEAD, SLOTS_BEFORE
from control_plane.capacity.models import (
    CapacityBound,
    CapacityMove,
    CapacityPlan,
    CapacityPlanner,
    CapacitySample,
)
from control_plane.contracts.capacity import PlannerMode
from control_plane.contracts.deployment import PoolRole
from control_plane.operations.models import OperationClaim
from control_plane.topology.models import Datacenter, Deployment, Fleet, Model, Pool

Rows = Sequence[Any]
MEASURED = ("inflight", "queued", "kv_usage")
DAY_S = 86_400


async def add_samples(session: AsyncSession, reports: Sequence[Mapping[str, Any]]) -> None:
    """Counts reports into this minute. Each names its `deployment_id`; a deployment may be named once."""
    minute = func.date_trunc("minute", func.clock_timestamp())
    statement = insert(CapacitySample).values([{**report, "minute_at": minute, "reports": 1} for report in reports])
    new = statement.excluded
    await session.execute(statement.on_conflict_do_update(index_elements=["deployment_id", "minute_at"], set_={
        "reports": CapacitySample.reports + 1,
        **{name: func.greatest(getattr(CapacitySample, name), new[name]) for name in MEASURED},
    }))


async def samples(session: AsyncSession, now: datetime, minutes: int) -> Rows:
    """Every deployment's last whole minutes, and the one that is going on."""
    return (await session.execute(select(
        CapacitySample.deployment_id, CapacitySample.minute_at, CapacitySample.inflight, CapacitySample.queued,
        CapacitySample.kv_usage,
    ).where(CapacitySample.minute_at >= now.replace(second=0, microsecond=0) - timedelta(minutes=minutes))
        .order_by(CapacitySample.deployment_id, CapacitySample.minute_at))).all()


async def slots(session: AsyncSession, now: datetime) -> Rows:
    """The slots around this time of day, for each deployment: how many days `back`, which `slot`, and peak and mean of
    requests inside the engine and of those that wait."""
    now = now.replace(second=0, microsecond=0)
    first, length = now - timedelta(seconds=SLOTS_BEFORE * SLOT_S), timedelta(
        seconds=(SLOTS_BEFORE + SLOTS_AHEAD) * SLOT_S)
    since_s = func.extract("epoch", CapacitySample.minute_at - first)
    back = -func.floor(since_s / DAY_S)
    slot = func.floor((since_s + back * DAY_S) / SLOT_S)
    windows = [and_(CapacitySample.minute_at >= first - timedelta(days=days),
                    CapacitySample.minute_at < min(first - timedelta(days=days) + length, now))
               for days in range(DAYS + 1)]
    return (await session.execute(select(
        CapacitySample.deployment_id, back.label("back"), slot.label("slot"),
        func.max(CapacitySample.inflight).label("inflight_peak"),
        func.avg(CapacitySample.inflight).label("inflight_mean"), func.max(CapacitySample.queued).label("queued_peak"),
        func.avg(CapacitySample.queued).label("queued_mean"),
    ).where(or_(*windows), CapacitySample.inflight.is_not(None), CapacitySample.queued.is_not(None))
        .group_by(CapacitySample.deployment_id, "back", "slot"))).all()


async def prune_samples(session: AsyncSession, older_than: timedelta) -> int:
    """Removes old samples; how many."""
    result = await session.execute(delete(CapacitySample).where(CapacitySample.minute_at < func.now() - older_than))
    return int(getattr(result, "rowcount", 0))


async def prune_plans(session: AsyncSession, idle_older_than: timedelta, older_than: timedelta) -> None:
    """Removes old plans and moves; those that moved nothing sooner."""
    await session.execute(delete(CapacityPlan).where(or_(
        CapacityPlan.planned_at < func.now() - older_than,
        and_(CapacityPlan.moves == 0, CapacityPlan.planned_at < func.now() - idle_older_than))))
    await session.execute(delete(CapacityMove).where(CapacityMove.moved_at < func.now() - older_than))


async def fleets(session: AsyncSession) -> Rows:
    """Each fleet, where it is, and when its agent was heard."""
    now = func.clock_timestamp()
    return (await session.execute(
        select(Fleet.id, Fleet.datacenter_id, Datacenter.region_id, Datacenter.traffic_state, Fleet.gpu_type,
               Fleet.gpu_total, func.coalesce(AgentLease.expires_at > now, False).label("is_heard"),
               func.extract("epoch", now - FleetView.observed_at).label("age_s"))
        .join(Datacenter, Datacenter.id == Fleet.datacenter_id)
        .outerjoin(AgentLease, AgentLease.fleet_id == Fleet.id)
        .outerjoin(FleetView, FleetView.fleet_id == Fleet.id).order_by(Fleet.id))).all()


async def pools(session: AsyncSession) -> Rows:
    """Each pool with its deployment, and what it is held between."""
    return (await session.execute(
        select(Pool.deployment_id, Deployment.model_id, Deployment.fleet_id, Deployment.phase,
               Deployment.share_permille, Pool.role, Pool.replicas, Pool.ready_replicas, Pool.gpus_per_replica,
               Pool.max_inflight,
               func.coalesce(CapacityBound.minimum, 1).label("minimum"), CapacityBound.maximum)
        .join(Deployment, Deployment.id == Pool.deployment_id)
        .outerjoin(CapacityBound, and_(
            CapacityBound.deployment_id == Pool.deployment_id, CapacityBound.role == Pool.role))
        .order_by(Pool.deployment_id, Pool.role))).all()


async def min_datacenters(session: AsyncSession) -> dict[str, int]:
    """How many datacenters each model must keep."""
    rows = (await session.execute(select(Model.id, Model.min_datacenters).order_by(Model.id))).all()
    return {row[0]: int(row[1]) for row in rows}


async def claims(session: AsyncSession) -> dict[str, str]:
    """What operations under way claim, and which."""
    rows = (await session.execute(select(OperationClaim.resource, OperationClaim.operation_id))).all()
    return {row[0]: row[1] for row in rows}


async def moves_since(session: AsyncSession, since: datetime) -> Sequence[CapacityMove]:
    return (await session.execute(
        select(CapacityMove).where(CapacityMove.moved_at >= since).order_by(CapacityMove.id))).scalars().all()


async def planner(session: AsyncSession, lock: bool = False) -> CapacityPlanner:
    """The planner's row."""
    query = select(CapacityPlanner).execution_options(populate_existing=True)
    return (await session.execute(query.with_for_update() if lock else query)).scalar_one()


async def lease(session: AsyncSession, token: str, lease_s: float, every_s: float, configured: PlannerMode) -> bool:
    """Whether it is time to plan and nobody else does: then the planner is leased under `token`."""
    now = func.clock_timestamp()
    found = await session.execute(update(CapacityPlanner).where(
        func.coalesce(CapacityPlanner.mode, configured.value) != PlannerMode.OFF.value,
        or_(CapacityPlanner.lock_expires_at.is_(None), CapacityPlanner.lock_expires_at < now),
        or_(CapacityPlanner.planned_at.is_(None), CapacityPlanner.planned_at <= now - timedelta(seconds=every_s)),
    ).values(lock_token=token, lock_expires_at=now + timedelta(seconds=lease_s)).returning(CapacityPlanner.id))
    return found.scalar_one_or_none() is not None


async def release(session: AsyncSession, token: str) -> None:
    """Gives the lease back, unless another replica has it by now."""
    await session.execute(update(CapacityPlanner).where(CapacityPlanner.lock_token == token).values(
        lock_token=None, lock_expires_at=None))


async def resize(session: AsyncSession, deployment_id: str, role: PoolRole, before: int, after: int) -> bool:
    """Changes how many replicas a pool shall have; false if it has others than `before` by now."""
    found = await session.execute(update(Pool).where(
        Pool.deployment_id == deployment_id, Pool.role == role, Pool.replicas == before,
    ).values(replicas=after).returning(Pool.role).execution_options(synchronize_session=False))
    return found.scalar_one_or_none() is not None


async def reissue(session: AsyncSession, fleet_id: str, deployment_ids: Sequence[str]) -> None:
    """Raises the generation of deployments, and of their fleet; whoever calls holds the fleet's row."""
    options = {"synchronize_session": False}
    await session.execute(update(Deployment).where(Deployment.id.in_(deployment_ids)).values(
        generation=Deployment.generation + 1).execution_options(**options))
    await session.execute(update(Fleet).where(Fleet.id == fleet_id).values(
        generation=Fleet.generation + 1).execution_options(**options))


async def plans(session: AsyncSession, before_id: str | None, limit: int, only_moves: bool) -> Sequence[CapacityPlan]:
    """Plans from the newest backwards, starting below `before_id`."""
    query = select(CapacityPlan).order_by(CapacityPlan.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(CapacityPlan.id < before_id)
    if only_moves:
        query = query.where(CapacityPlan.moves > 0)
    return (await session.execute(query)).scalars().all()


async def store_bound(session: AsyncSession, deployment_id: str, role: PoolRole, minimum: int,
                      maximum: int | None) -> None:
    values = {"minimum": minimum, "maximum": maximum}
    await session.execute(insert(CapacityBound).values(deployment_id=deployment_id, role=role, **values)
                          .on_conflict_do_update(index_elements=["deployment_id", "role"], set_=values))
