"""Each rule that holds a pool back, alone; and all of them for any fleet that hypothesis makes up."""

import random
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.capacity.demand import Forecast, PoolDemand
from control_plane.capacity.headroom import headrooms
from control_plane.capacity.hysteresis import Direction, PastMove, Signal, Signals
from control_plane.capacity.observed import Fleet, Observed, Policy, Pool, holdings
from control_plane.capacity.planner import Plan, plan
from control_plane.capacity.reservations import Reservation
from control_plane.capacity.rules import Hold
from control_plane.contracts.deployment import PoolRole
from tests.unit.control_plane.capacity.fleets import (
    FLEETS,
    NOW_S,
    asked,
    held,
    held_of,
    observed,
    past,
    planned,
    pool,
    shrinking,
)

WEST = pool("west")
FULL = {WEST.key: asked(39)}
World = tuple[Observed, dict[tuple[str, PoolRole], PoolDemand], Policy]


def fleet(**changes: Any) -> dict[str, Fleet]:
    return {**FLEETS, "west": replace(FLEETS["west"], **changes)}


@pytest.mark.parametrize(("changes", "rule", "words"), [
    ({"frozen": "automation is frozen by olga: storm"}, Hold.FROZEN, "by olga: storm"),
    ({"fleets": fleet(takes_traffic=False)}, Hold.OUT_OF_SERVICE, "us-1 takes no traffic"),
    ({"fleets": fleet(is_heard=False)}, Hold.SILENT_AGENT, "the agent of west holds no lease"),
    ({"fleets": fleet(age_s=61.0)}, Hold.STALE_REPORT, "west last reported 61 s ago; at most 60 s"),
    ({"fleets": fleet(age_s=None)}, Hold.STALE_REPORT, "west never reported"),
])
def test_a_pool_is_left_alone_when(changes: dict[str, Any], rule: Hold, words: str) -> None:
    verdict = held_of(planned(observed(WEST, **changes), FULL), WEST)
    assert verdict.rule is rule
    assert words in verdict.why


@pytest.mark.parametrize(("changes", "rule"), [
    ({"operation": "op_7"}, Hold.OPERATION), ({"max_inflight": None}, Hold.UNKNOWN_CAPACITY),
    ({"ready": None}, Hold.UNKNOWN_CAPACITY)])
def test_a_pool_is_left_alone_for_what_it_is(changes: dict[str, Any], rule: Hold) -> None:
    changed = replace(WEST, **changes)
    assert held_of(planned(observed(changed), FULL), changed).rule is rule


@pytest.mark.parametrize(("coverage", "moves"), [(0.79, 0), (0.8, 1)])
def test_four_fifths_of_the_last_minutes_must_be_known(coverage: float, moves: int) -> None:
    made = planned(observed(WEST), {WEST.key: asked(39, coverage=coverage)})
    assert len(made.moves) == moves


@pytest.mark.parametrize(("since_s", "moves"), [(599, 0), (600, 1)])
def test_a_signal_must_hold_for_ten_minutes(since_s: float, moves: int) -> None:
    made = planned(observed(WEST, signals=held([WEST], Direction.UP, NOW_S - since_s)), FULL)
    assert len(made.moves) == moves
    if not moves:
        assert "so for 599 s of 600 s" in held_of(made, WEST).why


def test_the_plan_remembers_signals_for_the_next_one() -> None:
    made = planned(observed(WEST, signals=Signals()), FULL)
    assert made.signals.at_s == NOW_S
    assert made.signals.of[WEST.key].direction is Direction.UP


@pytest.mark.parametrize(("ago_s", "moves"), [(299, 0), (300, 1)])
def test_a_model_is_stepped_once_in_five_minutes_wherever_it_was_stepped(ago_s: float, moves: int) -> None:
    made = planned(observed(WEST, history=(past(pool("east"), 1, ago_s),)), FULL)
    assert len(made.moves) == moves


@pytest.mark.parametrize(("ago_s", "moves"), [(1_799, 0), (1_800, 1)])
def test_a_pool_does_not_turn_within_thirty_minutes(ago_s: float, moves: int) -> None:
    assert len(planned(observed(WEST, history=(past(WEST, -1, ago_s),)), FULL).moves) == moves
    down = planned(shrinking(WEST, history=(past(WEST, 1, ago_s),)), {WEST.key: asked(1)})
    assert len(down.moves) == moves


@pytest.mark.parametrize(("load", "moves"), [(20, 0), (26, 0), (32, 0), (32.1, 1)])
def test_between_50_and_80_percent_nothing_is_moved(load: float, moves: int) -> None:
    for seen in (observed(WEST), shrinking(WEST)):
        assert len(planned(seen, {WEST.key: asked(load)}).moves) == (moves if seen.signals.of[
            WEST.key].direction is Direction.UP else 0)


class Chance(random.Random):
    """Draws fleets that are mostly sound, so that most of what the planner may do is done."""

    def rarely(self, usual: Any, *others: Any) -> Any:
        return self.choice(others) if self.random() < 0.08 else usual

    def demand(self, one: Pool) -> PoolDemand:
        holds = one.replicas * (one.max_inflight or 16)
        now = self.rarely(self.choice([0.1, 0.3, 0.6, 0.9, 1.3, 3.0]) * holds * self.uniform(0.9, 1.1), None)
        expected = self.choice([None, 0.0, now, (now or 4.0) * self.uniform(0.5, 2.0)])
        usage = self.choice([None, self.uniform(0, 0.3), self.uniform(0, 1)])
        return PoolDemand(
            now, None if now is None else now * self.uniform(1, 1.5), usage, usage, self.rarely(1.0, 0.8, 0.7, 0.0),
            None if expected is None else Forecast(expected, expected * self.uniform(1, 1.5)))

    def pool(self, place: Fleet, model: int, role: PoolRole, sleepy: bool) -> Pool:
        replicas = self.choice([0, 1, 1, 2, 4, 8, 12])
        return Pool(
            f"{place.id}-m{model}", f"m{model}", place.id, role, replicas,
            self.rarely(replicas, max(0, replicas - 1), None), self.choice([0, 1, 1, 2]), self.rarely(16, 8, None),
            0 if sleepy else self.choice([1, 1, 2]), self.choice([None, None, 12]), self.rarely(None, "op_1"))

    def place(self, at: int) -> Fleet:
        return Fleet(f"f{at}", f"dc{at}", f"r{at % 2}", self.randrange(4, 97), self.rarely(True, False),
                     self.rarely(True, False), self.rarely(10.0, 60.0, 61.0, None))

    def signal(self, one: Pool, asked_of: PoolDemand) -> Signals:
        full = (asked_of.now or 0.0) > 0.5 * one.replicas * (one.max_inflight or 16) or not one.replicas
        return held([one], self.rarely(Direction.UP if full else Direction.DOWN, *Direction),
                    NOW_S - self.rarely(4_000.0, 600.0, 599.0, 0.0))

    def past_move(self, one: Pool) -> PastMove:
        change = self.choice([-2, -1, 1])
        return PastMove(NOW_S - self.uniform(0, 4_000), one.model_id, one.fleet_id, one.key, change,
                        change * one.gpus_per_replica)


def world_of(seed: int) -> World:
    chance = Chance(seed)
    fleets = {place.id: place for place in map(chance.place, range(chance.randrange(1, 5)))}
    pools: list[Pool] = []
    for model in range(chance.randrange(1, 4)):
        roles = chance.choice([(PoolRole.AGGREGATED,), (PoolRole.DECODE, PoolRole.PREFILL)])
        sleepy = chance.random() < 0.3
        pools += [chance.pool(place, model, role, sleepy) for place in fleets.values() for role in roles]
    demand = {one.key: chance.demand(one) for one in pools}
    quiet = chance.random() < 0.3
    if quiet:
        demand |= {one.key: PoolDemand(0.0, 0.0, None, None, 1.0, Forecast(0.0, 0.0))
                   for one in pools if one.model_id == "m0"}
    signals: dict[tuple[str, PoolRole], Signal] = {}
    for one in pools:
        signals |= chance.signal(one, demand[one.key]).of
    seen = Observed(
        fleets, tuple(pools), peaks={f"m{at}": 0 if quiet and at == 0 else chance.randrange(60) for at in range(3)},
        min_datacenters={"m0": chance.choice([1, 1, 1, 2])},
        reservations=tuple(Reservation(f"r{at}", "m0", chance.randrange(1, 60), frozenset(chance.choice(
            [(), ("r0",), ("r0", "r1")]))) for at in range(chance.choice([0, 0, 0, 1, 2]))),
        history=tuple(chance.past_move(chance.choice(pools)) for _ in range(chance.choice([0, 0, 1, 3]))),
        signals=Signals(NOW_S - 60, signals), frozen=chance.rarely("", "frozen"))
    return seen, demand, Policy(spare_datacenters=chance.choice([0, 1]))


def kinds(made: Plan) -> set[str]:
    """What a plan does and does not."""
    found = {"up" if move.after > move.before else "down" for move in made.moves}
    found |= {word for word in ("reserved", "has no room", "expected soon") for move in made.moves if word in move.why}
    found |= {"sleep" for move in made.moves if move.after == 0} | {"wake" for move in made.moves if move.before == 0}
    return found | {one.rule.value for one in made.held}


def test_the_made_up_fleets_meet_everything_that_the_planner_does_and_every_rule() -> None:
    found: set[str] = set()
    for seed in range(3_000):
        seen, demand, policy = world_of(seed)
        found |= kinds(plan(seen, demand, policy, NOW_S))
    assert found >= {"up", "down", "reserved", "has no room", "expected soon", "sleep", "wake", *Hold}


@settings(max_examples=1_000, deadline=None)
@given(st.integers(0, 2**64))
def test_no_plan_for_any_fleet_breaks_a_rule(seed: int) -> None:
    seen, demand, policy = world_of(seed)
    made = plan(seen, demand, policy, NOW_S)
    assert made == plan(replace(seen, pools=seen.pools[::-1]), demand, policy, NOW_S)
    assert Counter([one.pool.key for one in made.moves] + [one.pool.key for one in made.held]) == Counter(
        one.key for one in seen.pools)
    assert not (seen.frozen and made.moves)
    for move in made.moves:
        check_move(seen, demand, made, move.pool, move.before, move.after)
    check_fleets(seen, made)
    check_models(seen, made)


def check_move(seen: Observed, demand: dict[tuple[str, PoolRole], PoolDemand], made: Plan, moved: Pool, before: int,
               after: int) -> None:
    """Rules 4 and 5 for one move, counted anew."""
    place = seen.fleets[moved.fleet_id]
    assert place.takes_traffic
    assert place.is_heard
    assert place.age_s is not None
    assert place.age_s <= 60
    assert moved.operation is None
    assert moved.max_inflight is not None
    assert (before, after != before) == (moved.replicas, True)
    assert before == 0 or demand[moved.key].coverage >= 0.8
    for past_move in seen.history:
        ago_s = NOW_S - past_move.at_s
        assert past_move.model_id != moved.model_id or ago_s >= 300
        assert past_move.key != moved.key or ago_s >= 1_800 or past_move.replicas * (after - before) > 0
    if after < before:
        assert made.signals.of[moved.key].since_s <= NOW_S - 600
        assert moved.ready == before
        assert after >= moved.minimum
    else:
        assert any(made.signals.of[one.key].since_s <= NOW_S - 600 for one in seen.of_model(moved.model_id)
                   if one.key in made.signals.of)
        assert moved.maximum is None or after <= moved.maximum


def check_fleets(seen: Observed, made: Plan) -> None:
    """At most a quarter of a fleet's GPUs in five minutes, and never more than there are."""
    changed: defaultdict[str, int] = defaultdict(int)
    for move in made.moves:
        changed[move.pool.fleet_id] += abs(move.gpus)
    for past_move in seen.history:
        if NOW_S - past_move.at_s < 300 and changed[past_move.fleet_id]:
            changed[past_move.fleet_id] += abs(past_move.gpus)
    after = {move.pool.key: move.after for move in made.moves}
    for name, place in seen.fleets.items():
        assert changed[name] <= place.gpu_total / 4
        mine = [one for one in seen.pools if one.fleet_id == name]
        if any(after.get(one.key, 0) > one.replicas and one.gpus_per_replica for one in mine):
            assert sum(max(one.ready or 0, one.replicas, after.get(one.key, 0)) * one.gpus_per_replica
                       for one in mine) <= place.gpu_total


def check_models(seen: Observed, made: Plan) -> None:
    """Rules 1 and 2 for every model of which something was taken away."""
    replicas = {one.key: one.replicas for one in seen.pools}
    after = replicas | {move.pool.key: min(move.before, move.after) for move in made.moves}
    for model in {move.pool.model_id for move in made.moves if move.after < move.before}:
        left = holdings(seen, after, model)
        places = {one.datacenter_id for one in left if one.serves}
        may_sleep = all(one.minimum == 0 for one in seen.of_model(model)) and not seen.peaks[model]
        assert len(places) >= seen.min_datacenters.get(model, 1) or (may_sleep and not places)
        found = headrooms(left, seen.peaks, [one for one in seen.reservations if one.model_id == model])[model]
        for need in found.needs:
            assert need.ready is not None
            assert need.ready >= 1.2 * max(need.peak or 0, need.reserved) - 1e-9
