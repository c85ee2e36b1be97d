"""The lineage of this control plane's history: who has seen more than the database holds, and the proof of a new one.

Somebody is ahead only after an older copy of the database took the place of the one before. The machines refuse what it
says from then on; they serve on, and `recovery` puts it right.
"""

from collections.abc import Sequence
from datetime import timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import metrics
from control_plane.agents.models import AgentLease
from control_plane.contracts.recovery import AheadView, SignedRecovery
from control_plane.routing import repository
from control_plane.routing.models import Edge

LIVE_FOR = timedelta(seconds=15)
COMMAND = "meridian recover --reason TEXT"

log = structlog.get_logger()


async def proof(session: AsyncSession, lineage: int) -> SignedRecovery | None:
    """The signed order that began `lineage`; none for the first."""
    row = await repository.recovery(session, lineage)
    return None if row is None else SignedRecovery(key_id=row.key_id, signature=row.signature, body=row.body)


async def ahead(session: AsyncSession) -> Sequence[AheadView]:
    """The machines that have seen more than the database holds."""
    lineage, version = await repository.head(session)
    return [*map(_edge, await repository.edges_ahead(session, lineage, version)),
            *map(_agent, await repository.agents_ahead(session, lineage))]


async def behind(session: AsyncSession) -> Sequence[AheadView]:
    """The live machines that do not follow the lineage yet."""
    lineage, _ = await repository.head(session)
    return [*map(_edge, await repository.edges_behind(session, lineage, LIVE_FOR)),
            *map(_agent, await repository.agents_behind(session, lineage))]


def note_ahead(kind: str, machine_id: str, seen: object, held: object, is_news: bool) -> None:
    """Counts a report of a machine that is ahead, and says so in the log when it is new."""
    metrics.MACHINES_AHEAD.labels(kind).inc()
    if is_news:
        log.error("database_older_than_machine", kind=kind, machine=machine_id, seen=seen, held=held,
                  hint=f"if the database was restored from a copy: {COMMAND}")


def _edge(edge: Edge) -> AheadView:
    return AheadView(kind="edge", id=edge.id, seen=f"snapshot {edge.acked_lineage}.{edge.acked_version}")


def _agent(lease: AgentLease) -> AheadView:
    return AheadView(kind="agent", id=lease.identity, seen=(
        f"lineage {lease.seen_lineage}, epoch {lease.seen_epoch}, generation {lease.seen_generation}"))
