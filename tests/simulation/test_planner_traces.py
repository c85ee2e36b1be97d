"""The planner never swings in a month of made-up traffic, serves it, and saves what it is there to save."""

import math
from dataclasses import replace

import pytest

from control_plane.capacity.hysteresis import Limits
from tests.simulation.planner_traces import (
    EVERY_MINUTES,
    MINUTES_A_DAY,
    POLICY,
    READY_AFTER_MINUTES,
    Replicas,
    Samples,
    Sum,
    World,
    main,
)


@pytest.mark.parametrize("seed", [0, 4])
def test_a_month_has_no_swing_and_no_step_that_is_too_large(seed: int) -> None:
    found = World(seed).run()
    assert found.faults == []
    assert len(found.moves) > 100
    assert found.short_minutes / found.minutes < 0.001
    assert found.short_requests / found.requests < 0.0001
    assert found.gpu_hours < 0.6 * found.static_gpu_hours


def test_the_requests_of_a_datacenter_that_is_away_are_served_by_the_others() -> None:
    world = World(3, days=3)
    name, start, end = world.away
    found = world.run()
    assert all(world.samples[key].minutes[start] == 0 for key, one in world.pools.items() if one.pool.fleet_id == name)
    assert end - start >= 60
    assert found.short_requests / found.requests < 0.001


def test_a_planner_without_memory_would_swing() -> None:
    hasty = replace(POLICY, limits=Limits(low=0.64, high=0.66, sustain_s=0, step_interval_s=0, reversal_s=0,
                                          interval_s=EVERY_MINUTES * 60.0))
    assert World(0, days=3, policy=hasty).run().swings > 0


def test_a_planner_that_takes_larger_steps_is_found_out() -> None:
    greedy = replace(POLICY, limits=replace(POLICY.limits, step_percent=100, sustain_s=0))
    assert any("of a fleet in one step" in fault for seed in range(5)
               for fault in World(seed, days=3, policy=greedy).run().faults)


def test_a_seed_is_one_trace_always_the_same() -> None:
    first, second = World(7, days=2).run(), World(7, days=2).run()
    assert first == second
    assert first != World(8, days=2).run()


def test_traffic_has_a_daily_wave_and_bursts() -> None:
    traffic = next(iter(World(0, days=8).traffic.values())).requests
    hours = [sum(traffic[at:at + 60]) / 60 for at in range(0, MINUTES_A_DAY, 60)]
    assert max(hours) > 1.5 * min(hours)
    assert max(traffic) > max(hours)


def test_replicas_are_ready_after_some_minutes_and_gone_at_once() -> None:
    world = World(0, days=1)
    one = Replicas(next(iter(world.pools.values())).pool, 4)
    one.change(6, minute=10)
    assert (one.ready(10 + READY_AFTER_MINUTES - 1), one.ready(10 + READY_AFTER_MINUTES)) == (4, 6)
    one.change(5, minute=20)
    assert one.ready(20) == 5


def test_samples_give_each_day_back_in_slots_around_this_time() -> None:
    samples = Samples()
    for minute in range(2 * MINUTES_A_DAY):
        samples.add(float(minute))
    today, yesterday = samples.day(0), samples.day(1)
    assert sorted(today) == list(range(6))
    assert sorted(yesterday) == list(range(12))
    assert yesterday[5].peak == MINUTES_A_DAY - 1
    assert yesterday[6].peak == MINUTES_A_DAY + 9
    assert samples.day(3) == {}


def test_many_traces_are_summed_and_a_faulty_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--traces", "2", "--start", "5", "--days", "1"]) == 0
    assert "2 traces of 1 days" in capsys.readouterr().out


def test_shares_are_of_the_whole() -> None:
    total = Sum()
    for seed in (0, 1):
        total.add(World(seed, days=1).run())
    assert total.traces == 2
    assert 0 <= total.short_request_share <= total.short_minute_share < 1
    assert math.isclose(total.gpu_hour_share, total.gpu_hours / total.static_gpu_hours)
