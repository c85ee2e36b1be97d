"""What the planner moves, by how much, and how it explains it."""

from dataclasses import replace

import pytest

from control_plane.capacity.hysteresis import Direction, Signals
from control_plane.capacity.observed import Fleet, Policy, usable_share
from control_plane.capacity.reservations import Reservation
from control_plane.capacity.rules import Hold
from tests.unit.control_plane.capacity.fleets import (
    AGGREGATED,
    DECODE,
    FLEETS,
    GLM,
    NOW_S,
    POLICY,
    PREFILL,
    asked,
    held,
    held_of,
    move_of,
    observed,
    past,
    planned,
    pool,
    shrinking,
)

WEST, EAST = pool("west"), pool("east")


class TestGrowing:
    def test_a_pool_over_80_percent_grows_to_65(self) -> None:
        made = planned(observed(WEST), {WEST.key: asked(33)})
        assert (move_of(made, WEST).before, move_of(made, WEST).after, move_of(made, WEST).gpus) == (4, 6, 2)

    def test_the_explanation_has_the_signal_the_bound_and_what_is_left(self) -> None:
        move = move_of(planned(observed(WEST), {WEST.key: asked(36)}), WEST)
        assert move.why == "36 requests on 4 replicas planned for 10 each: 90% used, over 80%"
        assert move.leaves == "60% used, 26 of 32 GPUs of west free"

    def test_what_is_expected_soon_counts_like_what_is_asked_now(self) -> None:
        move = move_of(planned(observed(WEST), {WEST.key: asked(20, expected=39)}), WEST)
        assert move.after == 6
        assert "39 requests expected soon" in move.why.replace("on 4 replicas planned for 10 each ", "")

    def test_a_full_kv_cache_grows_a_pool_whatever_its_requests(self) -> None:
        move = move_of(planned(observed(WEST), {WEST.key: asked(5, kv_usage=0.9)}), WEST)
        assert move.after == 6
        assert "fullest KV cache 90%" in move.why

    def test_a_step_changes_at_most_a_quarter_of_the_fleets_gpus(self) -> None:
        assert move_of(planned(observed(WEST), {WEST.key: asked(500)}), WEST).after == 12

    def test_gpus_that_a_step_may_not_split_are_not_taken(self) -> None:
        wide = replace(WEST, gpus_per_replica=3)
        assert move_of(planned(observed(wide), {wide.key: asked(500)}), wide).gpus == 6

    def test_two_models_share_the_step_of_a_fleet(self) -> None:
        other = pool("west", deployment_id="west-m", model_id="m", replicas=4)
        made = planned(observed(WEST, other), {WEST.key: asked(500), other.key: asked(90)})
        assert sum(move.gpus for move in made.moves) == 8
        assert held_of(made, other).rule is Hold.STEP_SHARE

    def test_the_most_pressing_pool_is_served_first(self) -> None:
        other = pool("west", deployment_id="west-m", model_id="m", replicas=4)
        made = planned(observed(WEST, other), {WEST.key: asked(90), other.key: asked(500)})
        assert [move.pool.model_id for move in made.moves] == ["m"]

    def test_gpus_are_a_ceiling(self) -> None:
        full = {**FLEETS, "west": replace(FLEETS["west"], gpu_total=5)}
        seen = observed(WEST, fleets=full)
        assert move_of(planned(seen, {WEST.key: asked(500)}), WEST).after == 5

    def test_gpus_of_replicas_that_may_still_be_going_are_not_free(self) -> None:
        leaving = pool("west", deployment_id="west-m", model_id="m", replicas=4)
        seen = observed(WEST, leaving, fleets={"west": Fleet("west", "us-1", "us", 12)}, history=(
            past(leaving, -3, ago_s=600),))
        assert move_of(planned(seen, {WEST.key: asked(500)}), WEST).after == 5

    def test_gpus_of_replicas_that_are_still_there_are_not_free(self) -> None:
        leaving = pool("west", deployment_id="west-m", model_id="m", replicas=1, ready=3)
        seen = observed(WEST, leaving, fleets={"west": Fleet("west", "us-1", "us", 8)})
        assert move_of(planned(seen, {WEST.key: asked(500)}), WEST).after == 5

    def test_replicas_that_are_on_their_way_are_not_ordered_again(self) -> None:
        growing = replace(WEST, replicas=6, ready=4)
        seen = observed(growing, history=(past(WEST, 2, ago_s=400),))
        assert held_of(planned(seen, {growing.key: asked(36)}), growing).rule is Hold.DEAD_BAND

    def test_replicas_that_should_be_ready_by_now_and_are_not_do_not_count(self) -> None:
        broken = replace(WEST, replicas=6, ready=4)
        seen = observed(broken, history=(past(WEST, 2, ago_s=1_000),))
        assert move_of(planned(seen, {broken.key: asked(36)}), broken).after == 8

    def test_a_pool_without_any_ready_replica_does_not_grow(self) -> None:
        dead = replace(WEST, ready=0)
        assert held_of(planned(observed(dead), {dead.key: asked(36)}), dead).rule is Hold.UNREADY

    def test_a_pool_below_its_minimum_grows_to_it(self) -> None:
        low = replace(WEST, minimum=6)
        assert move_of(planned(observed(low), {low.key: asked(1)}), low).after == 6

    def test_a_maximum_is_kept(self) -> None:
        capped = replace(WEST, maximum=5)
        assert move_of(planned(observed(capped), {capped.key: asked(100)}), capped).after == 5
        full = replace(WEST, maximum=4)
        assert held_of(planned(observed(full), {full.key: asked(100)}), full).rule is Hold.MAXIMUM

    def test_prefill_grows_by_what_waits_for_a_first_token_and_decode_by_all(self) -> None:
        prefill = pool("west", PREFILL, replicas=2)
        made = planned(observed(WEST, prefill), {WEST.key: asked(24), prefill.key: asked(19)})
        assert [(move.pool.role, move.after) for move in made.moves] == [(PREFILL, 3)]

    def test_a_pool_without_gpus_steps_by_a_quarter_of_itself(self) -> None:
        light = replace(WEST, gpus_per_replica=0, replicas=8, ready=8)
        assert move_of(planned(observed(light), {light.key: asked(500)}), light).after == 10


class TestShrinking:
    def test_a_pool_under_50_percent_shrinks_to_65(self) -> None:
        made = planned(shrinking(WEST, peaks={GLM: 13}), {WEST.key: asked(13)})
        assert (move_of(made, WEST).after, move_of(made, WEST).gpus) == (2, -2)
        assert move_of(made, WEST).leaves == "65% used, 2 GPUs of west free within 900 s"

    @pytest.mark.parametrize("demand", [
        asked(5, peak=30), asked(5, expected=5, upper=30), asked(5, kv_peak=0.6)])
    def test_it_does_not_when_it_was_fuller_lately_or_may_be_within_the_hour(self, demand: object) -> None:
        made = planned(shrinking(WEST), {WEST.key: demand})  # type: ignore[dict-item]
        assert held_of(made, WEST).rule is Hold.DEAD_BAND

    def test_the_last_replica_stays(self) -> None:
        one = replace(WEST, replicas=1, ready=1)
        assert held_of(planned(shrinking(one), {one.key: asked(0)}), one).rule is Hold.DEAD_BAND

    def test_a_minimum_is_kept(self) -> None:
        kept = replace(WEST, minimum=3)
        assert move_of(planned(shrinking(kept), {kept.key: asked(0)}), kept).after == 3

    def test_replicas_that_are_not_ready_come_back_first(self) -> None:
        lame = replace(WEST, ready=3)
        assert held_of(planned(shrinking(lame), {lame.key: asked(0)}), lame).rule is Hold.UNREADY

    def test_what_would_be_too_little_for_the_models_peak_stays(self) -> None:
        made = planned(shrinking(WEST, peaks={GLM: 30}), {WEST.key: asked(10)})
        assert held_of(made, WEST).rule is Hold.HEADROOM
        assert "1.2 times the larger of the 30-minute peak 30 and the reserved 0 is 36" in held_of(made, WEST).why

    def test_a_smaller_step_is_taken_when_the_whole_one_would_be_too_much(self) -> None:
        assert move_of(planned(shrinking(WEST, peaks={GLM: 24}), {WEST.key: asked(10)}), WEST).after == 3

    def test_two_pools_of_a_model_do_not_both_leave_what_each_alone_may(self) -> None:
        made = planned(shrinking(WEST, EAST, peaks={GLM: 50}), {WEST.key: asked(10), EAST.key: asked(10)})
        assert sum(move.before - move.after for move in made.moves) == 2

    def test_what_is_reserved_stays(self) -> None:
        sold = Reservation("r", GLM, 30)
        made = planned(shrinking(WEST, reservations=(sold,)), {WEST.key: asked(10)})
        assert held_of(made, WEST).rule is Hold.HEADROOM

    def test_a_model_of_whose_peak_nothing_is_known_is_left_alone(self) -> None:
        assert held_of(planned(shrinking(WEST, peaks={}), {WEST.key: asked(1)}), WEST).rule is Hold.HEADROOM

    def test_a_model_that_is_not_known_everywhere_does_not_shrink_anywhere(self) -> None:
        made = planned(shrinking(WEST, EAST), {WEST.key: asked(1), EAST.key: asked(1, coverage=0.5)})
        assert made.moves == ()
        assert {one.rule for one in made.held} == {Hold.COVERAGE}

    def test_what_is_given_back_serves_nobody_in_the_same_plan(self) -> None:
        other = pool("west", deployment_id="west-m", model_id="m", replicas=8, ready=8)
        seen = observed(WEST, other, peaks={GLM: 0, "m": 80}, fleets={"west": Fleet("west", "us-1", "us", 12)},
                        signals=Signals(NOW_S - 60, {**held([other], Direction.UP).of,
                                                     **held([WEST], Direction.DOWN).of}))
        made = planned(seen, {WEST.key: asked(1), other.key: asked(80)})
        assert move_of(made, WEST).after == 1
        assert held_of(made, other).rule is Hold.STEP_SHARE


class TestZero:
    IDLE = asked(0, expected=0, upper=0)
    SLEEPY = pool("west", replicas=1, minimum=0), pool("west", PREFILL, replicas=1, minimum=0)

    def test_an_idle_deployment_that_may_sleep_goes_to_zero_as_a_whole(self) -> None:
        made = planned(shrinking(*self.SLEEPY), {one.key: self.IDLE for one in self.SLEEPY})
        assert [(move.pool.role, move.after) for move in made.moves] == [(DECODE, 0), (PREFILL, 0)]

    @pytest.mark.parametrize(("minimum", "peak"), [(1, 0), (0, 3)])
    def test_it_stays_when_a_pool_may_not_or_something_was_asked(self, minimum: int, peak: int) -> None:
        decode, prefill = self.SLEEPY
        pools = (decode, replace(prefill, minimum=minimum))
        made = planned(shrinking(*pools, peaks={GLM: peak}), {one.key: self.IDLE for one in pools})
        assert made.moves == ()

    def test_nothing_known_of_earlier_days_is_not_nothing_asked(self) -> None:
        made = planned(shrinking(*self.SLEEPY), {one.key: asked(0) for one in self.SLEEPY})
        assert made.moves == ()

    def test_a_model_keeps_the_datacenters_that_it_must(self) -> None:
        seen = shrinking(*self.SLEEPY, EAST, min_datacenters={GLM: 2})
        made = planned(seen, {**{one.key: self.IDLE for one in self.SLEEPY}, EAST.key: asked(0)})
        assert held_of(made, self.SLEEPY[0]).rule is Hold.LAST_DATACENTER

    def test_a_model_does_not_go_to_zero_where_another_deployment_may_not_sleep_and_is_lost(self) -> None:
        lost = {**FLEETS, "east": replace(FLEETS["east"], is_heard=False)}
        seen = shrinking(*self.SLEEPY, EAST, fleets=lost)
        made = planned(seen, {**{one.key: self.IDLE for one in self.SLEEPY}, EAST.key: asked(0)})
        assert held_of(made, self.SLEEPY[0]).rule is Hold.LAST_DATACENTER

    def test_it_wakes_whole_when_something_is_expected_of_it(self) -> None:
        asleep = tuple(replace(one, replicas=0, ready=0) for one in self.SLEEPY)
        made = planned(observed(*asleep), {asleep[0].key: asked(0, expected=4), asleep[1].key: self.IDLE})
        assert [(move.pool.role, move.after) for move in made.moves] == [(DECODE, 1), (PREFILL, 1)]

    def test_its_pools_do_not_each_count_on_the_same_gpus(self) -> None:
        asleep = tuple(replace(one, replicas=0, ready=0, gpus_per_replica=2) for one in self.SLEEPY)
        small = {**FLEETS, "west": replace(FLEETS["west"], gpu_total=12)}
        made = planned(observed(*asleep, fleets=small), {one.key: asked(0, expected=4) for one in asleep})
        assert made.moves == ()
        assert {one.rule for one in made.held} == {Hold.STEP_SHARE}

    def test_what_an_operator_scaled_to_zero_is_not_brought_back(self) -> None:
        asleep = tuple(replace(one, replicas=0, ready=0, minimum=1) for one in self.SLEEPY)
        made = planned(observed(*asleep), {one.key: asked(0, expected=40) for one in asleep})
        assert made.moves == ()
        assert held_of(made, asleep[0]).why.startswith("it was scaled to zero")

    def test_it_sleeps_on_when_nothing_is(self) -> None:
        asleep = tuple(replace(one, replicas=0, ready=0) for one in self.SLEEPY)
        made = planned(observed(*asleep), {one.key: self.IDLE for one in asleep})
        assert held_of(made, asleep[0]).why == "it has no replicas, and nothing is expected of it"


class TestSpare:
    POLICY = Policy()

    def test_with_one_datacenter_spared_half_of_two_is_planned_with(self) -> None:
        assert usable_share(observed(WEST, EAST), GLM, 1) == 0.5
        move = move_of(planned(observed(WEST, EAST), {WEST.key: asked(18), EAST.key: asked(10)}, self.POLICY), WEST)
        assert "planned for 5 each: 90% used" in move.why

    def test_a_datacenter_that_is_away_is_the_one_that_was_spared_for(self) -> None:
        away = {**FLEETS, "east": replace(FLEETS["east"], takes_traffic=False),
                "north": Fleet("north", "us-2", "us", 8)}
        assert usable_share(observed(WEST, EAST, fleets=away), GLM, 1) == 1.0
        assert usable_share(observed(WEST, EAST, pool("north"), fleets=away), GLM, 1) == 1.0
        assert usable_share(observed(WEST, EAST, pool("north"), fleets=away), GLM, 2) == 0.5

    def test_a_model_in_one_datacenter_has_nothing_to_spare(self) -> None:
        assert usable_share(observed(WEST), GLM, 1) == 1.0

    def test_nothing_shrinks_below_what_a_loss_of_any_datacenter_would_need(self) -> None:
        small = pool("east", replicas=1)
        seen = shrinking(replace(WEST, replicas=8, ready=8), small, peaks={GLM: 9})
        made = planned(seen, {WEST.key: asked(6), small.key: asked(3)}, self.POLICY)
        assert held_of(made, WEST).rule is Hold.SPARE
        assert "without us-1 too little is left" in held_of(made, WEST).why


class TestReservations:
    def test_a_pool_grows_for_what_is_reserved_before_anybody_asks(self) -> None:
        move = move_of(planned(observed(WEST, reservations=(Reservation("r", GLM, 50),)), {WEST.key: asked(1)}), WEST)
        assert move.after == 6
        assert move.why == "50 requests are reserved, which need 60; 40 are planned for"

    def test_it_grows_in_the_regions_that_are_named(self) -> None:
        sold = Reservation("r", GLM, 50, frozenset({"eu"}))
        made = planned(observed(WEST, EAST, reservations=(sold,)), {WEST.key: asked(25), EAST.key: asked(25)})
        assert [(move.pool.fleet_id, move.after) for move in made.moves] == [("east", 6)]
        assert "reserved in eu" in made.moves[0].why

    def test_the_roomiest_fleet_takes_what_may_be_anywhere(self) -> None:
        roomy = {**FLEETS, "east": replace(FLEETS["east"], gpu_total=64)}
        made = planned(observed(WEST, EAST, fleets=roomy, reservations=(Reservation("r", GLM, 80),)),
                       {WEST.key: asked(25), EAST.key: asked(25)})
        assert [move.pool.fleet_id for move in made.moves] == ["east"]


FULL_WEST = {**FLEETS, "west": replace(FLEETS["west"], gpu_total=4)}


class TestElsewhere:
    def test_what_has_no_room_at_home_is_added_where_there_is_some(self) -> None:
        made = planned(observed(WEST, EAST, fleets=FULL_WEST), {WEST.key: asked(38), EAST.key: asked(25)})
        assert (move_of(made, EAST).after, held_of(made, WEST).rule) == (6, Hold.GPUS)
        assert "west-glm is 2 replicas short and west has no room" in move_of(made, EAST).why

    def test_not_where_there_is_room_already(self) -> None:
        made = planned(observed(WEST, EAST, fleets=FULL_WEST), {WEST.key: asked(38), EAST.key: asked(15)})
        assert made.moves == ()
        assert held_of(made, WEST).why.endswith("eu-1 has room: traffic can be shifted there")

    def test_nothing_is_said_of_room_where_there_is_none_or_nothing_is_served(self) -> None:
        away = {**FULL_WEST, "east": replace(FLEETS["east"], takes_traffic=False)}
        made = planned(observed(WEST, EAST, fleets=away), {WEST.key: asked(38), EAST.key: asked(0)})
        assert "has room:" not in held_of(made, WEST).why

    def test_not_where_a_rule_forbids_it(self) -> None:
        made = planned(observed(WEST, replace(EAST, operation="op_1"), fleets=FULL_WEST),
                       {WEST.key: asked(38), EAST.key: asked(25)})
        assert made.moves == ()

    def test_prefill_elsewhere_helps_nobody(self) -> None:
        pools = [replace(one, role=PREFILL) for one in (WEST, EAST)]
        made = planned(observed(*pools, fleets=FULL_WEST), {pools[0].key: asked(38), pools[1].key: asked(25)})
        assert made.moves == ()

    def test_the_same_region_comes_first(self) -> None:
        fleets = {**FULL_WEST, "north": Fleet("north", "us-2", "us", 32), "east": replace(FLEETS["east"], gpu_total=64)}
        north = pool("north")
        made = planned(observed(WEST, EAST, north, fleets=fleets),
                       {WEST.key: asked(38), EAST.key: asked(25), north.key: asked(25)})
        assert [move.pool.fleet_id for move in made.moves] == ["north"]


class TestVerdicts:
    def test_every_pool_has_exactly_one(self) -> None:
        pools = [pool(fleet, role) for fleet in FLEETS for role in (DECODE, PREFILL)] + [
            pool("west", AGGREGATED, deployment_id="west-m", model_id="m", max_inflight=None)]
        made = planned(observed(*pools), {pools[0].key: asked(38)})
        assert sorted([*(one.pool.key for one in made.moves), *(one.pool.key for one in made.held)]) == sorted(
            one.key for one in pools)

    def test_a_held_pool_says_what_it_would_be_without_the_rule(self) -> None:
        verdict = held_of(planned(observed(WEST, frozen="automation is frozen"), {WEST.key: asked(36)}), WEST)
        assert (verdict.wanted, verdict.rule, verdict.why) == (6, Hold.FROZEN, "automation is frozen")

    def test_a_content_pool_says_why_it_is(self) -> None:
        verdict = held_of(planned(observed(WEST), {WEST.key: asked(25)}), WEST)
        assert (verdict.wanted, verdict.why) == (4, "62% used; between 50% and 80% nothing is moved")

    def test_the_same_input_makes_the_same_plan_in_whatever_order_it_comes(self) -> None:
        pools = [pool(fleet, role) for fleet in FLEETS for role in (DECODE, PREFILL)]
        demand = {one.key: asked(10.0 * at) for at, one in enumerate(pools)}
        there, back = observed(*pools), observed(*reversed(pools))
        assert planned(there, demand, POLICY) == planned(back, dict(reversed(demand.items())), POLICY)
