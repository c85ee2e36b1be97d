"""Windows of time as windows of request ids."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from control_plane.contracts import ids
from control_plane.usage.window import Window, floor_id, window

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
EARLY = timezone(timedelta(hours=14))


def test_an_id_made_at_the_start_lies_inside_and_one_made_at_the_end_outside() -> None:
    asked = Window(NOW, NOW + timedelta(hours=1))
    at_start, at_end = ids.uuid7(asked.start.timestamp()), ids.uuid7(asked.end.timestamp())
    assert asked.first_id <= at_start < asked.end_id <= at_end


def test_an_id_one_millisecond_before_the_start_lies_outside() -> None:
    assert ids.uuid7(NOW.timestamp() - 0.001) < floor_id(NOW)


def test_the_days_are_those_of_the_first_and_the_last_id() -> None:
    asked = Window(NOW, NOW + timedelta(days=2))
    assert (asked.first_day, asked.last_day) == (NOW.date(), (NOW + timedelta(days=2)).date())


def test_without_bounds_it_is_the_last_day() -> None:
    asked = window(None, None, NOW)
    assert asked.start <= NOW - timedelta(hours=23)
    assert asked.end > NOW


def test_other_time_zones_become_utc() -> None:
    start = NOW.astimezone(timezone(timedelta(hours=5)))
    assert window(start, start + timedelta(hours=1), NOW) == Window(NOW, NOW + timedelta(hours=1))


@pytest.mark.parametrize(("start", "end"), [
    (NOW, NOW), (NOW, NOW - timedelta(seconds=1)), (NOW - timedelta(days=401), NOW),
    (NOW.replace(tzinfo=None), NOW), (NOW, (NOW + timedelta(hours=1)).replace(tzinfo=None))])
def test_a_window_without_sense_is_refused(start: datetime, end: datetime) -> None:
    with pytest.raises(ValueError, match="end"):
        window(start, end, NOW)


def test_times_before_the_epoch_are_the_lowest_id() -> None:
    assert floor_id(datetime(1960, 1, 1, tzinfo=UTC)).int == 0


@pytest.mark.parametrize(("start", "end"), [
    (None, datetime(1, 1, 1, tzinfo=UTC)),
    (datetime(1, 1, 1, tzinfo=EARLY), datetime(1, 1, 1, 1, tzinfo=EARLY)),
    (None, datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14))))])
def test_a_time_at_the_end_of_the_calendar_is_refused(start: datetime | None, end: datetime) -> None:
    with pytest.raises(ValueError, match="beyond the years"):
        window(start, end, NOW)
