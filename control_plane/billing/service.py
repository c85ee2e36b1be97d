"""Keeps prices immutable and finds them."""

from collections.abc import Collection

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing import repository
from control_plane.billing.models import PriceVersion
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.pricing import Price, usd_text
from control_plane.contracts.topology import PriceDocument
from control_plane.errors import Conflict


async def ensure_price(session: AsyncSession, model_id: str, price: PriceDocument) -> bool:
    """Makes sure that this version of the model's price is stored; true if it is new.

    Raises:
        Conflict: the version is stored with other numbers, or for another model.
    """
    if await repository.add_price(session, model_id, price):
        return True
    (stored,) = await repository.prices(session, [price.version])
    if stored.model_id != model_id or price_of(stored) != Price(**price.model_dump()):
        raise Conflict(
            f"price version {price.version!r} is stored with other numbers; prices never change, name a new version",
            code="price_immutable", numbers=_numbers(stored))
    return False


async def prices_of(session: AsyncSession, versions: Collection[str]) -> dict[str, tuple[str, Price]]:
    """Model id and price by version; a version that nobody stored is missing."""
    return {row.version: (row.model_id, price_of(row)) for row in await repository.prices(session, versions)}


def price_of(row: PriceVersion) -> Price:
    """The stored row as edges and rating see it."""
    return Price(version=row.version, input_usd=row.input_usd, cached_input_usd=row.cached_input_usd,
                 output_usd=row.output_usd)


async def money_scopes(session: AsyncSession, team_id: str, key_id: str) -> list[LimitScope]:
    """Whose money an edge must lease before it serves this key: the key's when it has a budget, the team's when it is
    prepaid or has one. Nobody's: nothing limits what the key spends."""
    return sorted(await repository.limited_scopes(session, team_id, key_id))


def _numbers(row: PriceVersion) -> dict[str, str]:
    price = price_of(row)
    return {"model": row.model_id, "input_usd": usd_text(price.input_usd),
            "cached_input_usd": usd_text(price.cached_input_usd), "output_usd": usd_text(price.output_usd)}
