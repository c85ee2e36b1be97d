"""The lineage of this control plane's history: who has seen more than the database holds, and the proof of a new one.

Somebody is ahead only after an older copy of the database took the place of the one before. The machines refuse what it
says from then on; they serve on, and `recovery` puts it right.
"""

from collections.abc import Sequence

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import metrics
from control_plane.contracts.recovery import AheadView, SignedRecovery
from control_plane.routing import repository

COMMAND = "meridian recover --reason TEXT"

log = structlog.get_logger()


async def proof(session: AsyncSession, lineage: int) -> SignedRecovery | None:
    """The signed order that began `lineage`; none for the first."""
    row = await repository.recovery(session, lineage)
    return None if row is None else SignedRecovery(key_id=row.key_id, signature=row.signature, body=row.body)


async def ahead(session: AsyncSession) -> Sequence[AheadView]:
    """The machines that have seen more than the database holds."""
    lineage, version = await repository.head(session)
    edges = [AheadView(kind="edge", id=edge.id, seen=f"snapshot {edge.acked_lineage}.{edge.acked_version}")
             for edge in await repository.edges_ahead(session, lineage, version)]
    agents = [AheadView(kind="agent", id=row.identity, seen=(
                  f"lineage {row.seen_lineage}, epoch {row.seen_epoch}, generation {row.seen_generation}"))
              for row in await repository.agents_ahead(session, lineage)]
    return [*edges, *agents]


def note_ahead(kind: str, machine_id: str, seen: object, held: object, is_news: bool) -> None:
    """Counts a report of a machine that is ahead, and says so in the log when it is new."""
    metrics.MACHINES_AHEAD.labels(kind).inc()
    if is_news:
        log.error("database_older_than_machine", kind=kind, machine=machine_id, seen=seen, held=held,
                  hint=f"if the database was restored from a copy: {COMMAND}")
