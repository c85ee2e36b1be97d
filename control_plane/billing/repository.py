"""SQL of the billing slice."""

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing.models import PriceVersion
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
