"""What each pool would be changed to if no rule spoke against it: its load against what its replicas hold. Pure.

A pool's load is the requests in its part of the engine: those that wait for their first token in a prefill pool, all
of them in a decode or an aggregated one. So the ratio of prefill to decode follows the traffic by itself.

A replica is planned to hold `max_inflight` x the usable share: what remains when the spared datacenters are lost. A
pool above 80 % of that wants to grow to 65 %, by what is asked now or expected soon; one that stays below 50 % even at
the last half hour's peak and at the coming hour's wants to shrink to 65 %. The fullest KV cache counts like a load.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from control_plane.capacity.demand import PoolDemand
from control_plane.capacity.headroom import EVERYWHERE, SERVING_ROLES, region_sets, required
from control_plane.capacity.hysteresis import Direction, PoolKey
from control_plane.capacity.observed import Observed, Policy, Pool, usable_share

WAKING_LOAD = 0.5
"""Requests expected of a pool without replicas from which on it is brought back."""

NOTHING_KNOWN = PoolDemand(None, None, None, None, 0.0, None)


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers behind a verdict, null where unknown. `load` is what is asked now or expected soon, whichever is
    more; `quiet_load` the most that was asked lately or may be asked soon; `per_replica` what a replica is planned to
    hold; `utilisation` and `quiet_utilisation` are shares of that for all replicas, KV pressure included."""

    load: float | None
    quiet_load: float | None
    expected: float | None
    per_replica: float | None
    utilisation: float | None
    quiet_utilisation: float | None
    kv_usage: float | None
    coverage: float


@dataclass(frozen=True, slots=True)
class Wish:
    """A pool, what speaks for changing it, and the replicas it should have: as many as now without a direction.
    `together`: it goes to zero or comes back, and only with all pools of its deployment."""

    pool: Pool
    figures: Figures
    direction: Direction | None
    after: int
    why: str
    together: bool = False


def wishes(observed: Observed, demand: Mapping[PoolKey, PoolDemand], policy: Policy, now_s: float) -> list[Wish]:
    """A wish for every pool, ordered by key."""
    shares = {model: usable_share(observed, model, policy.spare_datacenters)
              for model in {pool.model_id for pool in observed.pools}}
    added = {move.key for move in observed.history if move.replicas > 0 and now_s - move.at_s < policy.settle_s}
    alone = {pool.key: _alone(pool, demand.get(pool.key, NOTHING_KNOWN), shares[pool.model_id], policy,
                              counted_replicas(pool, pool.key in added))
             for pool in sorted(observed.pools, key=lambda pool: pool.key)}
    for model_id in sorted(shares):
        _add_reserved(alone, observed, model_id, shares[model_id])
    deployments: dict[str, list[Wish]] = {}
    for wish in alone.values():
        deployments.setdefault(wish.pool.deployment_id, []).append(wish)
    return [wish for group in deployments.values() for wish in _together(group)]


def counted_replicas(pool: Pool, was_added_to: bool) -> int:
    """The replicas that a load is held against: those on their way count while they may still be starting."""
    return pool.replicas if was_added_to or pool.ready is None else min(pool.ready, pool.replicas)


def _alone(pool: Pool, asked: PoolDemand, share: float, policy: Policy, counted: int) -> Wish:
    """What the pool wants for its own load."""
    limits = policy.limits
    per_replica = None if pool.max_inflight is None else pool.max_inflight * share
    expected, upper = (asked.forecast.expected, asked.forecast.upper) if asked.forecast else (None, None)
    load, quiet = _largest(asked.now, expected), _largest(asked.peak, upper)
    figures = Figures(
        load=load, quiet_load=quiet, expected=expected, per_replica=per_replica,
        utilisation=_largest(_over(load, per_replica, counted), asked.kv_usage),
        quiet_utilisation=_largest(_over(quiet, per_replica, counted), asked.kv_peak),
        kv_usage=asked.kv_usage, coverage=asked.coverage)
    still = Wish(pool, figures, None, pool.replicas, "")
    if pool.replicas < pool.minimum and pool.replicas:
        return replace(still, direction=Direction.UP, after=pool.minimum, why=f"fewer than its minimum {pool.minimum}")
    if per_replica is None or load is None or quiet is None or figures.utilisation is None:
        return still
    if figures.utilisation > limits.high:
        fitting = max(_fitting(load, per_replica * limits.target),
                      _fitting(counted * (asked.kv_usage or 0.0), limits.target))
        after = max(fitting + pool.replicas - counted, pool.replicas + 1)
        return replace(still, direction=Direction.UP, after=after, why=_growing(figures, counted, limits.high))
    if pool.replicas and (figures.quiet_utilisation or 0.0) < limits.low:
        fitting = max(_fitting(quiet, per_replica * limits.target),
                      _fitting(counted * (asked.kv_peak or 0.0), limits.target))
        after = max(fitting, pool.minimum, 1)
        if after < pool.replicas:
            return replace(still, direction=Direction.DOWN, after=after, why=_shrinking(figures, counted, limits.low))
    return still


def _add_reserved(alone: dict[PoolKey, Wish], observed: Observed, model_id: str, share: float) -> None:
    """Lets the model's widest pool grow where what is reserved would not fit."""
    reservations = [one for one in observed.reservations if one.model_id == model_id]
    for regions in sorted({EVERYWHERE} | region_sets(reservations), key=sorted):
        reserved = sum(one.requests for one in reservations if not regions or (one.regions and one.regions <= regions))
        pools = [pool for pool in observed.of_model(model_id)
                 if pool.role in SERVING_ROLES and pool.max_inflight and observed.fleet_of(pool).takes_traffic
                 and (not regions or observed.fleet_of(pool).region_id in regions)]
        held = sum(max(alone[pool.key].after, pool.replicas) * (pool.max_inflight or 0) for pool in pools) * share
        if pools and held < required(reserved):
            pool = max(pools, key=lambda pool: (pool.replicas > 0, _room(observed, pool), pool.key))
            wish = alone[pool.key]
            missing = math.ceil((required(reserved) - held) / ((pool.max_inflight or 1) * share))
            where = f" in {', '.join(sorted(regions))}" if regions else ""
            alone[pool.key] = replace(
                wish, direction=Direction.UP, after=max(wish.after, pool.replicas) + missing,
                why=f"{reserved} requests are reserved{where}, which need {required(reserved)}; "
                    f"{held:.0f} are planned for")


def _together(group: list[Wish]) -> list[Wish]:
    """A deployment's wishes, where all its pools must go to zero or come back at once. What an operator scaled to zero
    without letting the planner do so stays there."""
    may_sleep = all(wish.pool.minimum == 0 for wish in group)
    if any(wish.pool.replicas == 0 for wish in group):
        woken = next((wish for wish in group if wish.direction is Direction.UP), None)
        return [wish if wish.pool.replicas else replace(
            wish, direction=Direction.UP, after=1, why=woken.why, together=True) if woken and may_sleep else replace(
            wish, direction=None, after=0) for wish in group]
    idle = all(wish.pool.replicas == 1 and wish.figures.quiet_load == 0 and wish.figures.expected is not None
               for wish in group)
    if not (idle and may_sleep):
        return group
    why = "nothing was asked of it lately, and nothing at this time on earlier days; it may be scaled to zero"
    return [replace(wish, direction=Direction.DOWN, after=0, why=why, together=True) for wish in group]


def _fitting(load: float, held_by_one: float) -> int:
    return math.ceil(round(load / held_by_one, 9))


def _over(load: float | None, per_replica: float | None, replicas: int) -> float | None:
    if load is None or per_replica is None:
        return None
    return load / (per_replica * replicas) if replicas else math.inf if load >= WAKING_LOAD else 0.0


def _largest(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _room(observed: Observed, pool: Pool) -> int:
    fleet = observed.fleet_of(pool)
    return fleet.gpu_total - sum(
        one.replicas * one.gpus_per_replica for one in observed.pools if one.fleet_id == fleet.id)


def _growing(figures: Figures, counted: int, high: float) -> str:
    soon = " expected soon" if figures.expected is not None and figures.expected == figures.load else ""
    return f"{_told(figures.load, figures.per_replica, counted)}{soon}: {_percent(figures.utilisation)} used, over " \
        f"{_percent(high)}" + (f" (fullest KV cache {_percent(figures.kv_usage)})" if figures.kv_usage else "")


def _shrinking(figures: Figures, counted: int, low: float) -> str:
    return f"{_told(figures.quiet_load, figures.per_replica, counted)} at most, lately and within the hour: " \
        f"{_percent(figures.quiet_utilisation)} used, under {_percent(low)}"


def _told(load: float | None, per_replica: float | None, counted: int) -> str:
    return f"{load or 0:.0f} requests on {counted} replicas planned for {per_replica or 0:.0f} each"


def _percent(share: float | None) -> str:
    return "–" if share is None else "all" if share == math.inf else f"{share:.0%}"  # noqa: RUF001
