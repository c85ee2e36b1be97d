"""Reads that answer a key's holder. Whatever belongs to a team is asked for with that team."""

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts import ids
from control_plane.usage.models import UsageRow


async def usage_record(session: AsyncSession, team_id: str, request_id: UUID) -> UsageRow | None:
    """The record of one request, if the team made it. The id names its partition."""
    return (await session.execute(select(UsageRow).where(
        UsageRow.day == ids.uuid7_day(request_id), UsageRow.id == request_id,
        UsageRow.team_id == team_id))).scalar_one_or_none()
