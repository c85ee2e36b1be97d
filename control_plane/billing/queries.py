"""SQL of the billing slice that only lists, for operators."""

from collections.abc import Sequence

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing.models import Budget, Credit, MoneyLease, MoneyScope
from control_plane.contracts.keys import LimitScope


async def credits(session: AsyncSession, team_id: str, limit: int, before_id: str | None) -> Sequence[Credit]:
    """A team's credits, the newest first."""
    query = select(Credit).where(Credit.team_id == team_id).order_by(Credit.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(Credit.id < before_id)
    return (await session.execute(query)).scalars().all()


async def scopes(session: AsyncSession, limit: int, after: tuple[str, ...] | None,
                 team_id: str | None) -> Sequence[MoneyScope]:
    """Everybody whose money was limited, by team."""
    order = (MoneyScope.team_id, MoneyScope.scope, MoneyScope.scope_id)
    query = select(MoneyScope).order_by(*order).limit(limit)
    if after is not None:
        query = query.where(tuple_(*order) > after)
    if team_id is not None:
        query = query.where(MoneyScope.team_id == team_id)
    return (await session.execute(query)).scalars().all()


async def budgets(session: AsyncSession, limit: int, after: tuple[str, ...] | None, team_id: str | None,
                  key_id: str | None) -> Sequence[Budget]:
    """Budgets: all, those of a team and its keys, or those of one key."""
    order = (Budget.scope, Budget.scope_id, Budget.interval)
    query = select(Budget).join(MoneyScope).order_by(*order).limit(limit)
    if after is not None:
        query = query.where(tuple_(*order) > after)
    if team_id is not None:
        query = query.where(MoneyScope.team_id == team_id)
    if key_id is not None:
        query = query.where(Budget.scope == LimitScope.KEY, Budget.scope_id == key_id)
    return (await session.execute(query)).scalars().all()


async def open_leases(session: AsyncSession, limit: int, after: tuple[int] | None) -> Sequence[MoneyLease]:
    """Open leases, the oldest first."""
    query = select(MoneyLease).where(MoneyLease.closed_at.is_(None)).order_by(MoneyLease.seq).limit(limit)
    if after is not None:
        query = query.where(MoneyLease.seq > after[0])
    return (await session.execute(query)).scalars().all()
