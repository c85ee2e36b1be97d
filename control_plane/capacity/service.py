"""Capacity for whoever asks: notes what agents report, counts headroom, and tells what the planner does and why."""

from collections.abc import Collection, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import paging
from control_plane.audit import service as audit
from control_plane.capacity import facts, planning, repository
from control_plane.capacity.facts import Facts
from control_plane.capacity.headroom import SERVING_ROLES, Holding, ModelHeadroom, headrooms, without
from control_plane.capacity.observed import Pool, holdings
from control_plane.contracts.agent_sync import ObservedDeployment
from control_plane.contracts.capacity import (
    BoundRequest,
    BoundView,
    CapacityView,
    FleetCapacity,
    ModelCapacity,
    ModeRequest,
    PlaceCapacity,
    PlannerView,
    PlanView,
    PoolCapacity,
    RegionNeed,
)
from control_plane.contracts.operator import Page
from control_plane.db import notify
from control_plane.errors import NotFound
from control_plane.settings import Settings

CAPACITY_CHANNEL = "capacity"
"""What the planner waits for: an operator changed what it may do."""


async def note(session: AsyncSession, reports: Sequence[ObservedDeployment]) -> None:
    """Counts an agent's reports of its own deployments into this minute's samples."""
    if reports:
        await repository.add_samples(session, [
            {"deployment_id": one.deployment_id, "inflight": one.inflight, "queued": one.queued,
             "kv_usage": one.kv_usage} for one in reports])


async def headroom(session: AsyncSession, leaving: Collection[str] = ()) -> dict[str, ModelHeadroom]:
    """Each model's headroom once the datacenters of `leaving` hold nothing more, as of this transaction."""
    seen = await facts.read(session, forecasts=False)
    held = [one for model_id in _models(seen) for one in _holdings(seen, model_id)]
    for datacenter_id in sorted(leaving):
        held = without(held, datacenter_id)
    return headrooms(held, seen.observed.peaks, seen.observed.reservations)


async def view(session: AsyncSession, settings: Settings, forecasts: bool = True) -> CapacityView:
    """All capacity at a glance; `expected` stays null without `forecasts`."""
    seen = await facts.read(session, forecasts=forecasts)
    return CapacityView(
        as_of=seen.now, planner=_planner(seen, settings), models=[_model(seen, model_id) for model_id in _models(seen)],
        fleets=[FleetCapacity(
            fleet=fleet.id, datacenter=fleet.datacenter_id, gpu_type=seen.gpu_types[fleet.id], total=fleet.gpu_total,
            used=sum(max(pool.replicas, pool.ready or 0) * pool.gpus_per_replica
                     for pool in seen.observed.pools if pool.fleet_id == fleet.id))
            for fleet in seen.observed.fleets.values()])


async def plan_now(session: AsyncSession, settings: Settings) -> PlanView:
    """What the planner would do now, and why; nothing is kept of it."""
    policy = planning.policy_of(settings)
    seen = await facts.read(session, policy.covered_minutes)
    found = planning.made(seen, policy)
    return planning.plan_view(found, seen, planning.mode_of(seen, settings), None, applied=False)


async def plans(session: AsyncSession, asked: paging.Asked, only_moves: bool) -> Page[PlanView]:
    """A page of the plans that were made, the newest first."""
    found = await repository.plans(session, asked.cursor, asked.limit + 1, only_moves)
    return paging.page([PlanView.model_validate(one.body) for one in found], asked, key=lambda plan: plan.id or "")


async def set_mode(session: AsyncSession, settings: Settings, asked: ModeRequest, actor: str) -> PlannerView:
    """Changes what the planner may do; it looks again at once."""
    planner = await repository.planner(session, lock=True)
    before = planner.mode or settings.capacity_mode
    planner.mode, planner.reason, planner.changed_by = asked.mode, asked.reason, actor
    seen = await facts.read(session, forecasts=False)
    planner.changed_at, planner.planned_at = seen.now, None
    audit.record(session, actor=actor, action="capacity.mode", target="capacity:planner", reason=asked.reason,
                 before={"mode": before.value}, after={"mode": asked.mode.value})
    await session.flush()
    await notify(session, CAPACITY_CHANNEL)
    return _planner(seen, settings)


async def set_bound(session: AsyncSession, asked: BoundRequest, actor: str) -> BoundView:
    """Holds a pool between two counts of replicas.

    Raises:
        NotFound: there is no such pool.
    """
    before = {(row.deployment_id, row.role): row for row in await repository.pools(session)}
    known = before.get((asked.deployment, asked.role))
    if known is None:
        pools = ", ".join(f"{deployment} {role.value}" for deployment, role in before) or "none"
        raise NotFound(f"there is no pool {asked.deployment} {asked.role.value}; there are: {pools}",
                       code="unknown_pool")
    await repository.store_bound(session, asked.deployment, asked.role, asked.minimum, asked.maximum)
    audit.record(session, actor=actor, action="capacity.bound", target=f"deployment:{asked.deployment}",
                 reason=asked.reason,
                 before={"role": asked.role.value, "minimum": known.minimum, "maximum": known.maximum},
                 after=asked.model_dump(mode="json", exclude={"reason"}))
    return BoundView(deployment=asked.deployment, role=asked.role, minimum=asked.minimum, maximum=asked.maximum)


def _models(seen: Facts) -> list[str]:
    return sorted({pool.model_id for pool in seen.observed.pools})


def _holdings(seen: Facts, model_id: str) -> list[Holding]:
    return holdings(seen.observed, {pool.key: pool.replicas for pool in seen.observed.pools}, model_id)


def _planner(seen: Facts, settings: Settings) -> PlannerView:
    row = seen.planner
    return PlannerView(
        mode=planning.mode_of(seen, settings), reason=row.reason, changed_by=row.changed_by, changed_at=row.changed_at,
        planned_at=row.planned_at, frozen=seen.observed.frozen or None)


def _model(seen: Facts, model_id: str) -> ModelCapacity:
    held = _holdings(seen, model_id)
    total, *regions = headrooms(held, seen.observed.peaks, [
        one for one in seen.observed.reservations if one.model_id == model_id])[model_id].needs
    places = [_place(seen, one) for one in held]
    loads = [place.load for place in places if place.serves or place.load]
    load = sum(one or 0.0 for one in loads) if loads and None not in loads else None
    return ModelCapacity(
        model=model_id, ready=total.ready, load=load, peak=total.peak, expected=facts.expected_of(seen, model_id),
        reserved=total.reserved, required=total.required, headroom=total.headroom,
        utilisation=_share(load, total.ready), places=places, regions=[RegionNeed(
            regions=sorted(need.regions), ready=need.ready, reserved=need.reserved, required=need.required,
            headroom=need.headroom) for need in regions])


def _place(seen: Facts, held: Holding) -> PlaceCapacity:
    pools = [pool for pool in seen.observed.pools if pool.deployment_id == held.deployment_id]
    serving = next((seen.demand[pool.key] for pool in pools if pool.role in SERVING_ROLES), None)
    load = serving.now if serving else None
    return PlaceCapacity(
        datacenter=held.datacenter_id, region=held.region_id, fleet=pools[0].fleet_id, deployment=held.deployment_id,
        serves=held.serves, ready=held.requests, load=load, utilisation=_share(load, held.requests),
        kv_usage=serving.kv_usage if serving else None, pools=[_pool(seen, pool) for pool in pools])


def _pool(seen: Facts, pool: Pool) -> PoolCapacity:
    load = seen.demand[pool.key].now
    holds = None if pool.ready is None or pool.max_inflight is None else pool.ready * pool.max_inflight
    return PoolCapacity(
        role=pool.role, replicas=pool.replicas, ready=pool.ready, max_inflight=pool.max_inflight,
        gpus_per_replica=pool.gpus_per_replica, minimum=pool.minimum, maximum=pool.maximum, load=load,
        utilisation=_share(load, holds))


def _share(load: float | None, holds: int | None) -> float | None:
    return None if load is None or not holds else load / holds
