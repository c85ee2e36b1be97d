"""Small fleets for tests of the planner: two datacenters, one model, pools that a test changes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from control_plane.capacity.demand import Forecast, PoolDemand
from control_plane.capacity.hysteresis import Direction, PastMove, PoolKey, Signal, Signals
from control_plane.capacity.observed import Fleet, Observed, Policy, Pool
from control_plane.capacity.planner import Held, Move, Plan, plan
from control_plane.contracts.deployment import PoolRole

NOW_S = 1_000_000.0
GLM = "z-ai/glm-5.3"
DECODE, PREFILL, AGGREGATED = PoolRole.DECODE, PoolRole.PREFILL, PoolRole.AGGREGATED
POLICY = Policy(spare_datacenters=0)
FLEETS = {"west": Fleet("west", "us-1", "us", 32), "east": Fleet("east", "eu-1", "eu", 32)}


def pool(fleet: str = "west", role: PoolRole = DECODE, replicas: int = 4, **changes: Any) -> Pool:
    """A pool all of whose replicas are ready; each holds 10 requests on 1 GPU."""
    made = Pool(f"{fleet}-glm", GLM, fleet, role, replicas, replicas, 1, 10)
    return replace(made, **changes)


def asked(now: float | None, *, peak: float | None = None, expected: float | None = None,
          upper: float | None = None, **changes: Any) -> PoolDemand:
    """What a pool is asked for; the peak and the forecast are as high as now where a test does not say."""
    forecast = None if expected is None and upper is None else Forecast(
        expected if expected is not None else now or 0.0, upper if upper is not None else expected or 0.0)
    made = PoolDemand(now, now if peak is None else peak, None, None, 1.0, forecast)
    return replace(made, **changes)


def observed(*pools: Pool, **changes: Any) -> Observed:
    """Fleets in service with these pools; every signal has held for long, so that tests of one rule meet only that."""
    made = Observed(FLEETS, pools, peaks={GLM: 0}, signals=held(pools, Direction.UP))
    return replace(made, **changes)


def held(pools: Iterable[Pool], direction: Direction, since_s: float = NOW_S - 3_600) -> Signals:
    """The signal of every pool, held since then."""
    return Signals(NOW_S - 60, {one.key: Signal(direction, since_s) for one in pools})


def shrinking(*pools: Pool, **changes: Any) -> Observed:
    """The same, with signals that tell every pool to shrink."""
    return observed(*pools, **({"signals": held(pools, Direction.DOWN)} | changes))


def past(one: Pool, replicas: int, ago_s: float) -> PastMove:
    """A move of the pool some time ago."""
    return PastMove(NOW_S - ago_s, one.model_id, one.fleet_id, one.key, replicas, replicas * one.gpus_per_replica)


def planned(seen: Observed, demand: Mapping[PoolKey, PoolDemand], policy: Policy = POLICY,
            now_s: float = NOW_S) -> Plan:
    return plan(seen, demand, policy, now_s)


def move_of(made: Plan, one: Pool) -> Move:
    """The pool's move, which there must be."""
    found = [move for move in made.moves if move.pool.key == one.key]
    assert found, made.held
    return found[0]


def held_of(made: Plan, one: Pool) -> Held:
    """What held the pool back, which something must have."""
    found = [verdict for verdict in made.held if verdict.pool.key == one.key]
    assert found, made.moves
    return found[0]
