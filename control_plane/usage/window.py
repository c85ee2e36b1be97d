"""Times as request ids and days. Usage is asked for by the time inside the id, which is also what partitions it."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from control_plane.contracts import ids

DEFAULT_SPAN = timedelta(days=1)
MAX_SPAN = timedelta(days=400)
AHEAD = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Window:
    """From `start` (inclusive) to `end` (exclusive), both with a time zone."""

    start: datetime
    end: datetime

    @property
    def first_id(self) -> UUID:
        return floor_id(self.start)

    @property
    def end_id(self) -> UUID:
        return floor_id(self.end)

    @property
    def first_day(self) -> date:
        return ids.uuid7_day(self.first_id)

    @property
    def last_day(self) -> date:
        return ids.uuid7_day(self.end_id)


def window(start: datetime | None, end: datetime | None, now: datetime) -> Window:
    """The window asked for; without a start one day, without an end until now, edges with a fast clock included.

    Raises:
        ValueError: no time zone, nothing between start and end, more than 400 days, or at the end of the calendar.
    """
    try:
        return _checked(start, end or now + AHEAD)
    except OverflowError as error:
        raise ValueError("start or end lies beyond the years that a date can have") from error


def _checked(start: datetime | None, end: datetime) -> Window:
    start = start or end - DEFAULT_SPAN
    if start.tzinfo is None or end.tzinfo is None:
        raise ValueError("start and end need a time zone, for example 2026-11-30T00:00:00Z")
    if not timedelta(0) < end - start <= MAX_SPAN:
        raise ValueError(f"end must lie after start, by at most {MAX_SPAN.days} days")
    return Window(start.astimezone(UTC), end.astimezone(UTC))


def floor_id(at: datetime) -> UUID:
    """The lowest id of its millisecond: ids made before `at` are below it, later ones are not."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)
