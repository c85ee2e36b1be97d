"""Regular work of the evidence slice."""

from control_plane.db import Database
from control_plane.evidence import service

MAX_BATCHES = 500


async def prune_minutes(db: Database) -> None:
    """Forgets minutes that nobody asks for any more, a batch a transaction. What is left over waits for the next run.
    """
    for _ in range(MAX_BATCHES):
        async with db.begin() as session:
            if not await service.prune(session):
                return
