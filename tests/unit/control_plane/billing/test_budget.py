"""Windows of budgets, and which limits may stand beside each other."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.billing.budget import check_order, resets_at, window_start, windows
from control_plane.contracts.money import Interval
from control_plane.errors import Refusal

DAILY, WEEKLY, MONTHLY, LIFETIME = Interval.DAILY, Interval.WEEKLY, Interval.MONTHLY, Interval.LIFETIME


def utc(year: int, month: int, day: int) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


@pytest.mark.parametrize(("interval", "start", "end"), [
    (DAILY, utc(2026, 12, 31), utc(2027, 1, 1)), (WEEKLY, utc(2026, 12, 28), utc(2027, 1, 4)),
    (MONTHLY, utc(2026, 12, 1), utc(2027, 1, 1)), (LIFETIME, utc(1970, 1, 1), None)])
def test_a_window_begins_and_ends_at_midnight_utc(interval: Interval, start: datetime, end: datetime | None) -> None:
    assert (window_start(interval, date(2026, 12, 31)), resets_at(interval, start)) == (start, end)


@pytest.mark.parametrize(("day", "monday"), [
    (date(2026, 11, 29), utc(2026, 11, 23)), (date(2026, 11, 30), utc(2026, 11, 30)),
    (date(2026, 12, 1), utc(2026, 11, 30))])
def test_a_week_begins_on_monday(day: date, monday: datetime) -> None:
    assert window_start(WEEKLY, day) == monday


@pytest.mark.parametrize(("month", "following"), [
    (utc(2027, 2, 1), utc(2027, 3, 1)), (utc(2028, 2, 1), utc(2028, 3, 1)), (utc(2026, 4, 1), utc(2026, 5, 1))])
def test_a_month_ends_with_its_last_day(month: datetime, following: datetime) -> None:
    assert resets_at(MONTHLY, month) == following


def test_the_windows_of_a_moment_are_those_of_its_day_in_utc() -> None:
    late = datetime(2026, 11, 30, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    assert windows(late)[DAILY] == utc(2026, 12, 1)


@given(st.dates(min_value=date(1971, 1, 1), max_value=date(9000, 1, 1)), st.sampled_from([DAILY, WEEKLY, MONTHLY]))
def test_every_day_lies_in_its_window_and_the_next_window_begins_where_it_ends(day: date, interval: Interval) -> None:
    start = window_start(interval, day)
    end = resets_at(interval, start)
    assert end is not None
    assert start.date() <= day < end.date()
    assert window_start(interval, end.date()) == end


@pytest.mark.parametrize("limits", [
    {}, {DAILY: Decimal(1)}, {DAILY: Decimal(1), LIFETIME: Decimal(2)},
    {LIFETIME: Decimal(4), MONTHLY: Decimal(3), WEEKLY: Decimal(2), DAILY: Decimal(1)}])
def test_limits_that_grow_with_the_interval_may_stand(limits: dict[Interval, Decimal]) -> None:
    check_order(limits)


@pytest.mark.parametrize("limits", [
    {DAILY: Decimal(2), WEEKLY: Decimal(1)}, {DAILY: Decimal(1), MONTHLY: Decimal(1)},
    {DAILY: Decimal(1), WEEKLY: Decimal(5), LIFETIME: Decimal(4)}])
def test_a_narrower_interval_with_as_much_or_more_is_refused(limits: dict[Interval, Decimal]) -> None:
    with pytest.raises(Refusal, match="must be below the"):
        check_order(limits)


def test_the_refusal_names_both_budgets_and_their_limits() -> None:
    with pytest.raises(Refusal, match=r"a daily budget of \$2\.5 must be below the weekly one of \$1"):
        check_order({DAILY: Decimal("2.50"), WEEKLY: Decimal(1)})
