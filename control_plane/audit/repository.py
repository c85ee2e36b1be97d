"""SQL of the audit log."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.audit.chain import StoredLink, Tip
from control_plane.audit.models import AuditEvent, AuditHead
from control_plane.contracts.audit import Link


async def newest(session: AsyncSession, limit: int, before_id: str | None, target: str | None) -> Sequence[AuditEvent]:
    """Events from the newest backwards, starting below `before_id`."""
    query = select(AuditEvent).order_by(AuditEvent.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(AuditEvent.id < before_id)
    if target is not None:
        query = query.where(AuditEvent.target == target)
    return (await session.execute(query)).scalars().all()


async def lock_head(session: AsyncSession) -> tuple[Tip, datetime]:
    """The newest event, held until the transaction ends, and when the transaction began."""
    row = (await session.execute(select(AuditHead.seq, AuditHead.hash, func.now()).with_for_update(of=AuditHead))).one()
    return Tip(row[0], row[1]), row[2]


async def append(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Stores events that follow the head, and moves it to the last of them."""
    await session.execute(insert(AuditEvent), list(rows))
    await session.execute(update(AuditHead).values(seq=rows[-1]["seq"], hash=rows[-1]["hash"]))


async def links(session: AsyncSession, after_seq: int, limit: int) -> list[StoredLink]:
    """The next events of the chain, in its order."""
    rows = await session.execute(select(
        AuditEvent.seq, AuditEvent.id, AuditEvent.at, AuditEvent.actor, AuditEvent.action, AuditEvent.target,
        AuditEvent.reason, AuditEvent.before, AuditEvent.after, AuditEvent.prev_hash, AuditEvent.hash,
    ).where(AuditEvent.seq > after_seq).order_by(AuditEvent.seq).limit(limit))
    return [StoredLink(Link(*row[:9]), row.prev_hash, row.hash) for row in rows]


async def head(session: AsyncSession) -> tuple[Tip, int]:
    """The head, and the number of the newest event, as of one moment."""
    newest_seq = select(func.coalesce(func.max(AuditEvent.seq), 0)).scalar_subquery()
    row = (await session.execute(select(AuditHead.seq, AuditHead.hash, newest_seq))).one()
    return Tip(row[0], row[1]), row[2]


async def seq_of(session: AsyncSession, hash_: bytes) -> int | None:
    """The number of the event with this hash."""
    return (await session.execute(select(AuditEvent.seq).where(AuditEvent.hash == hash_))).scalar_one_or_none()
