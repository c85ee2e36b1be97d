"""Identity work that may be lost or repeated without harm."""

from datetime import timedelta

from control_plane.contracts.clock import Clock, utc
from control_plane.db import Database
from control_plane.identity import repository

KEEP_EXPIRED = timedelta(days=7)


async def prune_enrolment_tokens(db: Database, clock: Clock) -> None:
    """Removes enrolment tokens that ended a week ago: until then a spent one still answers its own machine."""
    async with db.begin() as session:
        await repository.prune_enrolment_tokens(session, utc(clock.time_s()) - KEEP_EXPIRED)
