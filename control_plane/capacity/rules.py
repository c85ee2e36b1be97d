"""The rules that hold a pool back, each told with its numbers. Pure: safety rules 1, 2 and 4 to 6 as the planner keeps
them."""

from collections.abc import Mapping
from enum import StrEnum

from control_plane.capacity import hysteresis
from control_plane.capacity.headroom import Need, headrooms, without
from control_plane.capacity.hysteresis import Direction, PoolKey, Signals
from control_plane.capacity.observed import Observed, Policy, holdings
from control_plane.capacity.wishes import Wish


class Hold(StrEnum):
    """Why a pool stays as it is; the first that applies."""

    FROZEN = "frozen"
    OPERATION = "operation"
    OUT_OF_SERVICE = "out_of_service"
    SILENT_AGENT = "silent_agent"
    STALE_REPORT = "stale_report"
    UNKNOWN_CAPACITY = "unknown_capacity"
    COVERAGE = "coverage"
    DEAD_BAND = "dead_band"
    UNREADY = "unready"
    NOT_SUSTAINED = "not_sustained"
    STEP_INTERVAL = "step_interval"
    REVERSAL = "reversal"
    MAXIMUM = "maximum"
    STEP_SHARE = "step_share"
    GPUS = "gpus"
    LAST_DATACENTER = "last_datacenter"
    HEADROOM = "headroom"
    SPARE = "spare_datacenter"


Verdict = tuple[Hold, str]
"""A rule, and what it counted."""


def standing(wish: Wish, observed: Observed, policy: Policy, coverage: float) -> Verdict | None:
    """What speaks against any automatic change of the pool now. `coverage` is what is known of the last minutes."""
    pool, fleet = wish.pool, observed.fleet_of(wish.pool)
    if observed.frozen:
        return Hold.FROZEN, observed.frozen
    if pool.operation:
        return Hold.OPERATION, f"{pool.operation} is under way"
    if not fleet.takes_traffic:
        return Hold.OUT_OF_SERVICE, f"{fleet.datacenter_id} takes no traffic: it is kept as it is for its return"
    if not fleet.is_heard:
        return Hold.SILENT_AGENT, f"the agent of {fleet.id} holds no lease"
    if fleet.age_s is None or fleet.age_s > policy.max_age_s:
        age = "never reported" if fleet.age_s is None else f"last reported {fleet.age_s:.0f} s ago"
        return Hold.STALE_REPORT, f"{fleet.id} {age}; at most {policy.max_age_s:.0f} s"
    if pool.max_inflight is None:
        return Hold.UNKNOWN_CAPACITY, "nobody declared max_inflight: how many requests a replica holds well"
    if pool.ready is None:
        return Hold.UNKNOWN_CAPACITY, "its replicas were never observed"
    if coverage < policy.min_coverage:
        return Hold.COVERAGE, (f"{coverage:.0%} of the last {policy.covered_minutes} minutes are known, at least "
                               f"{policy.min_coverage:.0%} must be")
    return None


def past(wish: Wish, observed: Observed, policy: Policy, signals: Signals, now_s: float) -> Verdict | None:
    """What the pool's own past speaks against."""
    pool, limits = wish.pool, policy.limits
    if wish.direction is None:
        return Hold.DEAD_BAND, content(wish, policy)
    if pool.replicas and (pool.ready == 0 or (wish.direction is Direction.DOWN and pool.ready != pool.replicas)):
        return Hold.UNREADY, f"{wish.why}; {pool.ready} of {pool.replicas} replicas are ready"
    held_s = now_s - signals.of[pool.key].since_s
    if held_s < limits.sustain_s:
        return Hold.NOT_SUSTAINED, f"{wish.why}; so for {held_s:.0f} s of {limits.sustain_s:.0f} s"
    stepped_s = hysteresis.latest_step_s(observed.history, pool.model_id)
    if stepped_s is not None and now_s - stepped_s < limits.step_interval_s:
        return Hold.STEP_INTERVAL, (f"{wish.why}; {pool.model_id} was stepped {now_s - stepped_s:.0f} s ago, at most "
                                    f"once in {limits.step_interval_s:.0f} s")
    if not may_turn(wish.pool.key, wish.direction, observed, policy, now_s):
        return Hold.REVERSAL, f"{wish.why}; it went the other way less than {limits.reversal_s:.0f} s ago"
    return None


def may_turn(key: PoolKey, direction: Direction, observed: Observed, policy: Policy, now_s: float) -> bool:
    """Whether the pool was not moved the other way just now."""
    reverse_s = hysteresis.latest_reverse_s(observed.history, key, direction)
    return reverse_s is None or now_s - reverse_s >= policy.limits.reversal_s


def content(wish: Wish, policy: Policy) -> str:
    """Why a pool wants nothing."""
    limits, figures = policy.limits, wish.figures
    if figures.utilisation is None:
        return "nobody knows what is asked of it"
    if not wish.pool.replicas:
        return ("it has no replicas, and nothing is expected of it" if wish.pool.minimum == 0 else
                "it was scaled to zero; the planner brings back only what it may scale to zero itself")
    if (figures.quiet_utilisation or 0.0) < limits.low:
        return f"{figures.quiet_utilisation or 0.0:.0%} used at most, and fewer replicas would be too few"
    return f"{figures.utilisation:.0%} used; between {limits.low:.0%} and {limits.high:.0%} nothing is moved"


def broken(model_id: str, replicas: Mapping[PoolKey, int], observed: Observed, policy: Policy) -> Verdict | None:
    """The first safety rule that would not hold for a model whose pools had so many replicas."""
    held = holdings(observed, replicas, model_id)
    places = {one.datacenter_id for one in held if one.serves}
    needed = observed.min_datacenters.get(model_id, 1)
    may_sleep = not places and needed <= 1 and not observed.peaks.get(model_id) and all(
        pool.minimum == 0 for pool in observed.of_model(model_id))
    if len(places) < needed and not may_sleep:
        return Hold.LAST_DATACENTER, f"{len(places)} datacenters would serve {model_id}, it needs {needed}"
    if model_id not in observed.peaks:
        return Hold.HEADROOM, f"nothing is known of the last 30 minutes of {model_id}"
    reserved = [one for one in observed.reservations if one.model_id == model_id]
    for need in headrooms(held, observed.peaks, reserved)[model_id].needs:
        if need.ready is None or need.is_short:
            return Hold.HEADROOM, _shortage(need)
    for place in sorted(places) if policy.spare_datacenters and len(places) > 1 else ():
        lost = headrooms(without(held, place), observed.peaks, reserved)[model_id].total
        if lost.is_short:
            return Hold.SPARE, f"without {place} too little is left: {_shortage(lost)}"
    return None


def _shortage(need: Need) -> str:
    where = f" in {', '.join(sorted(need.regions))}" if need.regions else ""
    held = "an unknown number of" if need.ready is None else str(need.ready)
    return (f"{held} requests would be held{where}; 1.2 times the larger of the 30-minute peak "
            f"{'unknown' if need.peak is None else need.peak} and the reserved {need.reserved} is {need.required}")
