"""Writes and reads the audit log."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import paging
from control_plane.audit import repository
from control_plane.audit.models import AuditEvent
from control_plane.contracts import ids
from control_plane.contracts.operator import AuditView, Page


def record(session: AsyncSession, *, actor: str, action: str, target: str, reason: str | None = None,
           before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None) -> None:
    """Notes a change in the transaction that makes it: both are committed, or neither.

    `actor` is ``operator:NAME``, ``machine:ID`` or ``meridian``; `action` is ``thing.verb``; `target` is ``thing:ID``.
    """
    session.add(AuditEvent(
        id=ids.new_id("audit"), actor=actor, action=action, target=target, reason=reason,
        before=None if before is None else dict(before), after=None if after is None else dict(after)))


async def events(session: AsyncSession, asked: paging.Asked, target: str | None = None) -> Page[AuditView]:
    """A page of the log, the newest first."""
    found = await repository.newest(session, asked.limit + 1, asked.cursor, target)
    return paging.page([_view(event) for event in found], asked, key=lambda event: event.id)


def _view(event: AuditEvent) -> AuditView:
    return AuditView(
        id=event.id, at=event.at, actor=event.actor, action=event.action, target=event.target, reason=event.reason)
