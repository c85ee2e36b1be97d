"""Freezing automation: automatic operations and the planner stand still, operators go on (safety rule 6)."""

from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.audit import service as audit
from control_plane.contracts.operations import AutomationView, FreezeRequest, UnfreezeRequest
from control_plane.db import notify
from control_plane.operations import repository
from control_plane.operations.commands import OPERATIONS_CHANNEL
from control_plane.operations.models import Automation

TARGET = "automation"


def standing_still(row: Automation, now: datetime) -> str:
    """Why automation stands still now, in words; empty if it does not."""
    if not row.frozen or (row.frozen_until is not None and row.frozen_until <= now):
        return ""
    until = f" until {row.frozen_until:%Y-%m-%d %H:%M} UTC" if row.frozen_until else ""
    return f"automation is frozen{until} by {row.by}: {row.reason}"


async def why_still(session: AsyncSession) -> str:
    """The same, as it is in the database at this moment."""
    return standing_still(await repository.automation(session), await repository.now(session))


async def view(session: AsyncSession) -> AutomationView:
    """Whether automation may act."""
    return _view(await repository.automation(session), await repository.now(session))


async def freeze(session: AsyncSession, asked: FreezeRequest, actor: str) -> AutomationView:
    """Stops automation. Freezing again changes until when, and why."""
    row, now = await repository.automation(session, lock=True), await repository.now(session)
    row.frozen, row.reason, row.by = True, asked.reason, actor
    row.frozen_until = None if asked.ttl_s is None else now + timedelta(seconds=asked.ttl_s)
    audit.record(session, actor=actor, action="automation.freeze", target=TARGET, reason=asked.reason,
                 after={"until": row.frozen_until.isoformat() if row.frozen_until else None})
    await _changed(session)
    return _view(row, now)


async def unfreeze(session: AsyncSession, asked: UnfreezeRequest, actor: str) -> AutomationView:
    """Lets automation go on; what it had paused goes on by itself. Ending what is not frozen changes nothing."""
    row, now = await repository.automation(session, lock=True), await repository.now(session)
    if standing_still(row, now):
        audit.record(session, actor=actor, action="automation.unfreeze", target=TARGET, reason=asked.reason)
    row.frozen, row.frozen_until, row.reason, row.by = False, None, None, None
    await _changed(session)
    return _view(row, now)


async def _changed(session: AsyncSession) -> None:
    await session.flush()
    await notify(session, OPERATIONS_CHANNEL)


def _view(row: Automation, now: datetime) -> AutomationView:
    if not standing_still(row, now):
        return AutomationView(frozen=False)
    return AutomationView(frozen=True, until=row.frozen_until, reason=row.reason, by=row.by)
