"""The forecast from earlier days, and what the last minutes say."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.capacity.demand import (
    DAYS,
    MAX_GROWTH,
    MIN_GROWTH,
    SLOTS_AHEAD,
    SLOTS_BEFORE,
    Day,
    Forecast,
    Slot,
    forecast,
    observed,
)


def day(before: float, *ahead: float) -> Day:
    """A day with the same load in every slot until now, and `ahead` from now on; the last of these goes on."""
    later = [*ahead, *[ahead[-1]] * SLOTS_AHEAD][:SLOTS_AHEAD] if ahead else []
    return {at: Slot(load, load) for at, load in enumerate([before] * SLOTS_BEFORE + later)}


def today(before: float) -> Day:
    return {at: Slot(before, before) for at in range(SLOTS_BEFORE)}


def test_the_same_day_again_is_expected_when_today_is_like_the_days_before() -> None:
    assert forecast(today(10), [day(10, 20, 30, 40, 50)] * DAYS) == Forecast(expected=40, upper=50)


def test_a_day_with_twice_the_traffic_carries_that_on() -> None:
    assert forecast(today(20), [day(10, 20, 30, 40)] * DAYS) == Forecast(expected=80, upper=80)


@pytest.mark.parametrize(("recent", "growth"), [(1_000.0, MAX_GROWTH), (0.1, MIN_GROWTH)])
def test_growth_is_held_within_bounds(recent: float, growth: float) -> None:
    found = forecast(today(recent), [day(10, 20)] * DAYS)
    assert found is not None
    assert found.expected == pytest.approx(20 * growth)


def test_one_odd_day_decides_neither_what_is_expected_nor_what_is_not_ruled_out() -> None:
    usual = [day(10, 20, 30)] * (DAYS - 1)
    assert forecast(today(10), [*usual, day(10, 900)]) == forecast(today(10), [*usual, day(10, 20, 30)])


def test_two_days_that_differ_leave_the_higher_one_possible() -> None:
    assert forecast(today(10), [day(10, 20), day(10, 60)]) == Forecast(expected=40, upper=60)


def test_without_an_earlier_day_there_is_no_forecast() -> None:
    assert forecast(today(10), []) is None
    assert forecast(today(10), [{}] * DAYS) is None


def test_without_a_last_hour_there_is_no_forecast() -> None:
    assert forecast({}, [day(10, 20)] * DAYS) is None


def test_a_day_of_which_most_slots_are_missing_is_left_out() -> None:
    sparse = {at: slot for at, slot in day(10, 500).items() if at in (0, 1, 6, 7)}
    assert forecast(today(10), [sparse, day(10, 20)]) == Forecast(20, 20)


def test_a_model_that_wakes_after_idle_days_is_not_divided_by_nothing() -> None:
    assert forecast(today(5), [day(0, 10)] * DAYS) == Forecast(20, 20)
    assert forecast(today(0), [day(0, 0)] * DAYS) == Forecast(0, 0)


@given(st.lists(st.lists(st.floats(0, 1e6), min_size=12, max_size=12), min_size=1, max_size=DAYS), st.floats(0, 1e6))
def test_what_is_not_ruled_out_is_never_less_than_what_is_expected(days: list[list[float]], recent: float) -> None:
    found = forecast(today(recent), [{at: Slot(load, load) for at, load in enumerate(loads)} for loads in days])
    assert found is not None
    assert 0 <= found.expected <= found.upper < math.inf


def test_now_is_the_median_of_five_minutes_so_that_one_burst_minute_is_none() -> None:
    assert observed([1.0] * 28 + [90.0, 1.0], [], None).now == 1.0


def test_the_peak_is_the_highest_of_thirty_minutes() -> None:
    found = observed([500.0] + [90.0] + [1.0] * 29, [0.9] + [0.2] * 30, None)
    assert (found.peak, found.kv_peak, found.kv_usage) == (90.0, 0.2, 0.2)


def test_minutes_without_a_sample_are_neither_zero_nor_covered() -> None:
    found = observed([None] * 20 + [None, 8.0, None, 8.0, None, 8.0, None, 8.0, None, 8.0], [None] * 30, None)
    assert (found.now, found.coverage, found.kv_usage) == (8.0, 0.5, None)


def test_nothing_known_is_nothing_known() -> None:
    found = observed([], [], None)
    assert (found.now, found.peak, found.coverage) == (None, None, 0.0)
