"""SQL of the outbox."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.reconcile.models import OutboxRow


async def put(session: AsyncSession, topic: str, key: str, payload: dict[str, Any], delay_s: float = 0) -> None:
    """Asks for a task `topic` with `payload`, in the transaction of the fact that causes it.

    Does nothing while a row of the same `topic` and `key` waits to be handed over.
    """
    await session.execute(insert(OutboxRow).values(
        topic=topic, key=key, payload=payload, due_at=func.now() + timedelta(seconds=delay_s),
    ).on_conflict_do_nothing(index_elements=["topic", "key"], index_where=OutboxRow.lock_token.is_(None)))


async def lease(session: AsyncSession, token: str, lease_s: float, limit: int) -> Sequence[OutboxRow]:
    """Up to `limit` due rows that nobody else holds, now held under `token`; rows locked by others are passed over."""
    free = or_(OutboxRow.locked_until.is_(None), OutboxRow.locked_until < func.now())
    due = select(OutboxRow.id).where(OutboxRow.due_at <= func.now(), free).order_by(OutboxRow.due_at).limit(
        limit).with_for_update(skip_locked=True)
    statement = update(OutboxRow).where(OutboxRow.id.in_(due.scalar_subquery())).values(
        lock_token=token, locked_until=func.now() + timedelta(seconds=lease_s), attempts=OutboxRow.attempts + 1,
    ).returning(OutboxRow)
    return (await session.execute(statement)).scalars().all()


async def delivered(session: AsyncSession, token: str, row_ids: Sequence[int]) -> None:
    """Removes rows that were handed over, unless another replica holds them by now."""
    await session.execute(delete(OutboxRow).where(OutboxRow.lock_token == token, OutboxRow.id.in_(row_ids)))


async def postpone(session: AsyncSession, token: str, row_ids: Sequence[int], delay_s: float) -> None:
    """Lets rows that could not be handed over wait for `delay_s`; they stay leased, so that they keep their place."""
    await session.execute(update(OutboxRow).where(OutboxRow.lock_token == token, OutboxRow.id.in_(row_ids)).values(
        locked_until=func.now() + timedelta(seconds=delay_s)))
