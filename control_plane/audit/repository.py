"""SQL of the audit log."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.audit.models import AuditEvent


async def newest(session: AsyncSession, limit: int, before_id: str | None, target: str | None) -> Sequence[AuditEvent]:
    """Events from the newest backwards, starting below `before_id`."""
    query = select(AuditEvent).order_by(AuditEvent.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(AuditEvent.id < before_id)
    if target is not None:
        query = query.where(AuditEvent.target == target)
    return (await session.execute(query)).scalars().all()
