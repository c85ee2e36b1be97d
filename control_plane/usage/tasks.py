"""Usage work that may be lost or repeated without harm."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from control_plane.contracts.clock import Clock, utc
from control_plane.db import Database
from control_plane.usage import repository
from control_plane.usage.partitions import Partitions, days_ahead

CATCH_UP_HOURS = 3


async def rebuild_rollup(db: Database, payload: Mapping[str, Any]) -> None:
    """Sums the hour named in `payload` again."""
    hour = datetime.fromisoformat(str(payload["hour"]))
    async with db.begin() as session:
        await repository.rebuild_hour(session, hour)


async def catch_up_rollups(db: Database, clock: Clock) -> None:
    """Sums the last hours again: a record that was committed while its hour's task ran is found here."""
    now = utc(clock.time_s()).replace(minute=0, second=0, microsecond=0)
    for back in range(CATCH_UP_HOURS):
        await rebuild_rollup(db, {"hour": (now - timedelta(hours=back)).isoformat()})


async def make_partitions(db: Database, clock: Clock) -> None:
    """Makes the partitions of the coming days."""
    await Partitions().ensure(db, days_ahead(utc(clock.time_s()).date()))
