"""SQL of the billing slice."""

from collections.abc import Collection, Sequence

from sqlalchemy import and_, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing.models import Budget, MoneyScope, PriceVersion
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import BillingMode
from control_plane.contracts.topology import PriceDocument


async def add_price(session: AsyncSession, model_id: str, price: PriceDocument) -> bool:
    """Stores a version; false if it exists, whatever its numbers."""
    statement = insert(PriceVersion).values(
        version=price.version, model_id=model_id, input_usd=price.input_usd,
        cached_input_usd=price.cached_input_usd, output_usd=price.output_usd,
    ).on_conflict_do_nothing().returning(PriceVersion.version)
    return (await session.execute(statement)).scalar_one_or_none() is not None


async def prices(session: AsyncSession, versions: Collection[str]) -> Sequence[PriceVersion]:
    return (await session.execute(select(PriceVersion).where(PriceVersion.version.in_(versions)))).scalars().all()


async def limited_scopes(session: AsyncSession, team_id: str, key_id: str) -> Sequence[LimitScope]:
    """Which of the two is prepaid or has a budget."""
    has_budget = select(Budget.scope).where(
        Budget.scope == MoneyScope.scope, Budget.scope_id == MoneyScope.scope_id).exists()
    is_asked = or_(and_(MoneyScope.scope == LimitScope.TEAM, MoneyScope.scope_id == team_id),
                   and_(MoneyScope.scope == LimitScope.KEY, MoneyScope.scope_id == key_id))
    return (await session.execute(select(MoneyScope.scope).where(
        is_asked, or_(MoneyScope.mode == BillingMode.PREPAID, has_budget)))).scalars().all()
