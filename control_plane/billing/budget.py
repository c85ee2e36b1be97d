"""When a budget begins anew, and which budgets of one scope may stand beside each other. Pure."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from control_plane.contracts.money import Interval
from control_plane.contracts.pricing import usd_text
from control_plane.errors import Refusal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NARROWEST_FIRST = tuple(Interval)


def window_start(interval: Interval, day: date) -> datetime:
    """The start of the window that holds `day`: 00:00 UTC, weeks on Monday; of a lifetime the Unix epoch."""
    match interval:
        case Interval.DAILY:
            first = day
        case Interval.WEEKLY:
            first = day - timedelta(days=day.weekday())
        case Interval.MONTHLY:
            first = day.replace(day=1)
        case Interval.LIFETIME:
            return EPOCH
    return datetime(first.year, first.month, first.day, tzinfo=UTC)


def resets_at(interval: Interval, start: datetime) -> datetime | None:
    """When the window that began at `start` ends; a lifetime never does."""
    match interval:
        case Interval.DAILY:
            return start + timedelta(days=1)
        case Interval.WEEKLY:
            return start + timedelta(days=7)
        case Interval.MONTHLY:
            return (start + timedelta(days=31)).replace(day=1)
        case Interval.LIFETIME:
            return None


def windows(now: datetime) -> dict[Interval, datetime]:
    """The start of each interval's window at `now`."""
    day = now.astimezone(UTC).date()
    return {interval: window_start(interval, day) for interval in Interval}


def check_order(limits: Mapping[Interval, Decimal]) -> None:
    """Checks that a narrower interval's limit is smaller: one that is not could never bind.

    Raises:
        Refusal: two limits are the other way round; the message names them.
    """
    held = [interval for interval in NARROWEST_FIRST if interval in limits]
    for narrow, wide in pairwise(held):
        if limits[narrow] >= limits[wide]:
            raise Refusal(
                f"a {narrow} budget of ${usd_text(limits[narrow])} must be below the {wide} one of "
                f"${usd_text(limits[wide])}; a narrower interval has a smaller limit", code="budget_order")
