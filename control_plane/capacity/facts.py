"""What the planner looks at, read from the database in one transaction and made into plain data."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.capacity import repository, reservations
from control_plane.capacity.demand import COVERED_MINUTES, DAYS, PEAK_MINUTES, Day, PoolDemand, Slot, forecast, observed
from control_plane.capacity.hysteresis import Direction, PastMove, PoolKey, Signal, Signals
from control_plane.capacity.models import CapacityPlanner
from control_plane.capacity.observed import Fleet, Observed, Pool
from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations import repository as operations
from control_plane.operations.freezing import standing_still
from control_plane.topology.states import ROUTABLE

HISTORY = timedelta(hours=2)
"""Longer than any rule looks back."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything as of `now`. `gpu_types` are by fleet."""

    now: datetime
    planner: CapacityPlanner
    observed: Observed
    demand: Mapping[PoolKey, PoolDemand]
    gpu_types: Mapping[str, str]


async def read(session: AsyncSession, covered_minutes: int = COVERED_MINUTES, forecasts: bool = True) -> Facts:
    """All that a plan is made from. It stays true until the commit only for who locked the datacenters before. Without
    `forecasts` the samples of earlier days stay unread: who looks every few seconds has no use for them."""
    now = await operations.now(session)
    rows = await repository.fleets(session)
    pools = await _pools(session, rows)
    minutes = _by_minute(await repository.samples(session, now, PEAK_MINUTES), now)
    planner = await repository.planner(session)
    return Facts(
        now=now, planner=planner,
        observed=Observed(
            fleets={row.id: Fleet(
                row.id, row.datacenter_id, row.region_id, row.gpu_total, row.traffic_state is TrafficState.ACTIVE,
                row.is_heard, None if row.age_s is None else float(row.age_s)) for row in rows},
            pools=pools, peaks=peaks_of(minutes, {pool.deployment_id: pool.model_id for pool in pools}),
            min_datacenters=await repository.min_datacenters(session),
            reservations=tuple(await reservations.SOLD.active(session, now)),
            history=tuple(_past(move) for move in await repository.moves_since(session, now - HISTORY)),
            signals=read_signals(planner), frozen=standing_still(await operations.automation(session), now)),
        demand=_demand(pools, minutes, _days(await repository.slots(session, now)) if forecasts else {},
                       covered_minutes),
        gpu_types={row.id: row.gpu_type for row in rows})


async def peaks(session: AsyncSession, models: Mapping[str, str], now: datetime) -> dict[str, int]:
    """The models' peaks of the last 30 minutes; `models` is by deployment. A model without samples has none."""
    return peaks_of(_by_minute(await repository.samples(session, now, PEAK_MINUTES), now), models)


def peaks_of(minutes: Mapping[str, Sequence["Minute"]], models: Mapping[str, str]) -> dict[str, int]:
    """The highest minute of each model, over all of its deployments together."""
    totals: dict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for deployment_id, found in minutes.items():
        for at, minute in enumerate(found):
            if minute.inflight is not None and deployment_id in models:
                totals[models[deployment_id]][at] += minute.inflight
    return {model_id: max(by_minute.values()) for model_id, by_minute in sorted(totals.items())}


@dataclass(frozen=True, slots=True)
class Minute:
    """The highest that was reported in a minute; null: not read, or no report."""

    inflight: int | None = None
    queued: int | None = None
    kv_usage: float | None = None


def write_signals(signals: Signals) -> list[dict[str, Any]]:
    """Signals as they are kept."""
    return [{"deployment": deployment_id, "role": role.value, "direction": signal.direction.value,
             "since_s": signal.since_s, "at_s": signals.at_s}
            for (deployment_id, role), signal in sorted(signals.of.items())]


def read_signals(planner: CapacityPlanner) -> Signals:
    """Signals as they were kept."""
    if not planner.signals:
        return Signals()
    return Signals(planner.signals[0]["at_s"], {
        (one["deployment"], PoolRole(one["role"])): Signal(Direction(one["direction"]), one["since_s"])
        for one in planner.signals})


async def _pools(session: AsyncSession, fleets: Sequence[Any]) -> tuple[Pool, ...]:
    claims = await repository.claims(session)
    places = {fleet.id: fleet.datacenter_id for fleet in fleets}
    return tuple(Pool(
        deployment_id=row.deployment_id, model_id=row.model_id, fleet_id=row.fleet_id, role=row.role,
        replicas=row.replicas, ready=row.ready_replicas, gpus_per_replica=row.gpus_per_replica,
        max_inflight=row.max_inflight, minimum=row.minimum, maximum=row.maximum,
        operation=claims.get(f"deployment:{row.deployment_id}", claims.get(f"datacenter:{places[row.fleet_id]}")),
        serves=row.phase in ROUTABLE and row.share_permille > 0) for row in await repository.pools(session))


def _by_minute(rows: Sequence[Any], now: datetime) -> dict[str, list[Minute]]:
    """Each deployment's last minutes, the oldest first and the one that is going on last."""
    this_minute = now.replace(second=0, microsecond=0)
    found: dict[str, list[Minute]] = {}
    for row in rows:
        minutes = found.setdefault(row.deployment_id, [Minute()] * (PEAK_MINUTES + 1))
        back = round((this_minute - row.minute_at).total_seconds() / 60)
        if 0 <= back <= PEAK_MINUTES:
            minutes[PEAK_MINUTES - back] = Minute(row.inflight, row.queued, row.kv_usage)
    return found


def _days(rows: Sequence[Any]) -> dict[tuple[str, bool], list[Day]]:
    """The slots of each deployment's days, today first: of those requests that wait, or of all."""
    found: dict[tuple[str, bool], list[dict[int, Slot]]] = defaultdict(lambda: [{} for _ in range(DAYS + 1)])
    for row in rows:
        back, slot = int(row.back), int(row.slot)
        found[row.deployment_id, False][back][slot] = Slot(float(row.inflight_peak), float(row.inflight_mean))
        found[row.deployment_id, True][back][slot] = Slot(float(row.queued_peak), float(row.queued_mean))
    return {key: list(days) for key, days in found.items()}


def _demand(pools: Sequence[Pool], minutes: Mapping[str, Sequence[Minute]],
            days: Mapping[tuple[str, bool], Sequence[Day]], covered_minutes: int) -> dict[PoolKey, PoolDemand]:
    """What each pool is asked for, from whole minutes. Requests that wait for their first token are a prefill pool's
    load; all of them are a decode pool's, whose cache it is that fills."""
    found = {}
    for pool in pools:
        waits = pool.role is PoolRole.PREFILL
        whole = list(minutes.get(pool.deployment_id, ()))[:PEAK_MINUTES]
        today, *earlier = days.get((pool.deployment_id, waits), [{}])
        found[pool.key] = observed(
            [one.queued if waits else one.inflight for one in whole],
            [None if waits else one.kv_usage for one in whole], forecast(today, earlier), covered_minutes)
    return found


def _past(move: Any) -> PastMove:
    return PastMove(move.moved_at.timestamp(), move.model_id, move.fleet_id, (move.deployment_id, move.role),
                    move.replicas, move.gpus)


def expected_of(facts: Facts, model_id: str) -> float | None:
    """A model's forecast for the next half hour: null where any of its deployments has none."""
    forecasts = [facts.demand[pool.key].forecast for pool in facts.observed.of_model(model_id)
                 if pool.role is not PoolRole.PREFILL]
    known = [one.expected for one in forecasts if one is not None]
    return math.fsum(known) if known and len(known) == len(forecasts) else None
