"""Which partitions of `usage_record` there must be: one a day, made ahead by code and on demand by a batch."""

from collections.abc import Collection
from datetime import date, timedelta
from functools import partial

from control_plane.db import Database
from control_plane.usage import repository

DAYS_AHEAD = 3
MAX_KNOWN = 1_000


def partition_name(day: date) -> str:
    """``usage_record_p20261130``."""
    return f"usage_record_p{day:%Y%m%d}"


def days_ahead(today: date) -> list[date]:
    """Yesterday, for what is still on its way, until three days from now."""
    return [today + timedelta(days=offset) for offset in range(-1, DAYS_AHEAD + 1)]


class Partitions:
    """The days of which this process knows that their partition exists."""

    def __init__(self) -> None:
        self._known: set[date] = set()

    async def ensure(self, db: Database, days: Collection[date]) -> None:
        """Makes the partitions of `days` that are missing, each in a transaction of its own."""
        for day in sorted(set(days) - self._known):
            await db.run(partial(repository.ensure_partition, name=partition_name(day), day=day))
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known.add(day)
