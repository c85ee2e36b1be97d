"""Capacity work that may be lost or repeated without harm."""

from datetime import timedelta

from control_plane.capacity import repository
from control_plane.db import Database

SAMPLES_KEPT = timedelta(days=31)
IDLE_PLANS_KEPT, PLANS_KEPT = timedelta(days=2), timedelta(days=92)


async def prune(db: Database) -> None:
    """Removes samples, plans and moves that nobody looks at any more."""
    async with db.begin() as session:
        await repository.prune_samples(session, SAMPLES_KEPT)
        await repository.prune_plans(session, IDLE_PLANS_KEPT, PLANS_KEPT)
