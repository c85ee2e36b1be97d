"""SQL of the override slice."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.override.models import OperatorKey, OverrideOrder

MAX_KEYS = 500


async def add_key(session: AsyncSession, made: OperatorKey) -> bool:
    """Stores a key; false if it is known already."""
    return (await session.execute(insert(OperatorKey).values(
        key_id=made.key_id, name=made.name, public_key=made.public_key, created_by=made.created_by,
    ).on_conflict_do_nothing().returning(OperatorKey.key_id))).scalar_one_or_none() is not None


async def key(session: AsyncSession, key_id: str) -> OperatorKey | None:
    return (await session.execute(select(OperatorKey).where(
        OperatorKey.key_id == key_id).execution_options(populate_existing=True))).scalar_one_or_none()


async def living_keys(session: AsyncSession) -> Sequence[OperatorKey]:
    """The keys that snapshots carry."""
    return (await session.execute(select(OperatorKey).where(OperatorKey.revoked_at.is_(None)).order_by(
        OperatorKey.key_id).limit(MAX_KEYS))).scalars().all()


async def keys(session: AsyncSession, limit: int, after_id: str | None) -> Sequence[OperatorKey]:
    """Every key, revoked ones too, by id."""
    query = select(OperatorKey).order_by(OperatorKey.key_id).limit(limit)
    if after_id is not None:
        query = query.where(OperatorKey.key_id > after_id)
    return (await session.execute(query)).scalars().all()


async def revoke_key(session: AsyncSession, key_id: str) -> bool:
    """Ends a key; false if there was none alive."""
    return (await session.execute(update(OperatorKey).where(
        OperatorKey.key_id == key_id, OperatorKey.revoked_at.is_(None),
    ).values(revoked_at=func.now()).returning(OperatorKey.key_id))).scalar_one_or_none() is not None


async def keys_named(session: AsyncSession, key_ids: Collection[str]) -> Sequence[OperatorKey]:
    """Those of the keys that were ever registered, revoked ones too."""
    return (await session.execute(select(OperatorKey).where(OperatorKey.key_id.in_(key_ids)).execution_options(
        populate_existing=True))).scalars().all()


async def known_orders(session: AsyncSession, order_ids: Sequence[str]) -> set[str]:
    """Those of the orders that are stored already."""
    return set((await session.execute(select(OverrideOrder.id).where(OverrideOrder.id.in_(order_ids)))).scalars())


async def count_orders(session: AsyncSession, prefix: str) -> int:
    """How many orders have an id that begins so."""
    return (await session.execute(select(func.count()).select_from(OverrideOrder).where(
        OverrideOrder.id.startswith(prefix, autoescape=True)))).scalar_one()


async def add_orders(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> set[str]:
    """Stores orders that nobody reported yet; the ids of those."""
    if not rows:
        return set()
    return set((await session.execute(insert(OverrideOrder).values(list(rows)).on_conflict_do_nothing(
        index_elements=["id"]).returning(OverrideOrder.id))).scalars())
