"""Keeps prices immutable and finds them; books what was spent; says how a team's or a key's money stands."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing import booking, repository
from control_plane.billing.booking import Charge
from control_plane.billing.budget import EPOCH, NARROWEST_FIRST, windows
from control_plane.billing.models import PriceVersion
from control_plane.billing.standing import ScopeKey, Standing
from control_plane.contracts.account import TeamCredits
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import Interval
from control_plane.contracts.pricing import Price, usd_text
from control_plane.contracts.topology import PriceDocument
from control_plane.errors import Conflict


@dataclass(frozen=True, slots=True)
class KeySpend:
    """What a key has spent, in all and in the current day, week and month. `limit_usd`, `limit_interval` and
    `remaining_usd` are of its narrowest budget, null without one."""

    total_usd: Decimal
    daily_usd: Decimal
    weekly_usd: Decimal
    monthly_usd: Decimal
    limit_usd: Decimal | None = None
    limit_interval: Interval | None = None
    remaining_usd: Decimal | None = None


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


async def standings(session: AsyncSession, keys: Collection[ScopeKey], now: datetime) -> dict[ScopeKey, Standing]:
    """How the money of each scope stands at `now`; leases are read before spend (see `lending`)."""
    rows = {(row.scope, row.scope_id): row for row in await repository.scopes(session, keys)}
    lent, limits = await repository.lent(session, keys), await repository.limits(session, keys)
    credited = await repository.credited(session, {scope_id for scope, scope_id in keys if scope is LimitScope.TEAM})
    spent = await repository.spent(session, keys, windows(now))
    found = {}
    for key in keys:
        lent_nusd, open_leases = lent.get(key, (0, 0))
        standing = Standing(lent_nusd=lent_nusd, open_leases=open_leases, limits_usd=limits.get(key, {}),
                            spent_usd=spent.get(key, {}))
        if row := rows.get(key):
            total_usd = credited.get(key[1], Decimal(0)) if key[0] is LimitScope.TEAM else Decimal(0)
            standing = replace(standing, mode=row.mode, overdraft_usd=row.overdraft_usd, credited_usd=total_usd,
                               consumed_usd=row.consumed_usd, counted_from_usd=row.counted_from_usd)
        found[key] = standing
    return found


async def key_spend(session: AsyncSession, key_id: str, now: datetime) -> KeySpend:
    """What a key has spent and may still spend."""
    key = (LimitScope.KEY, key_id)
    standing = (await standings(session, [key], now))[key]
    spend = KeySpend(
        total_usd=standing.spent(Interval.LIFETIME), daily_usd=standing.spent(Interval.DAILY),
        weekly_usd=standing.spent(Interval.WEEKLY), monthly_usd=standing.spent(Interval.MONTHLY))
    narrowest = next((interval for interval in NARROWEST_FIRST if interval in standing.limits_usd), None)
    if narrowest is None:
        return spend
    return replace(spend, limit_usd=standing.limits_usd[narrowest], limit_interval=narrowest,
                   remaining_usd=standing.left_usd(narrowest))


async def team_credits(session: AsyncSession, team_id: str) -> TeamCredits:
    """All that was ever credited to a team, and all that it ever spent."""
    key = (LimitScope.TEAM, team_id)
    credited = await repository.credited(session, [team_id])
    spent = await repository.spent(session, [key], {Interval.LIFETIME: EPOCH})
    return TeamCredits(team_id=team_id, total_credits_usd=credited.get(team_id, Decimal(0)),
                       total_usage_usd=spent.get(key, {}).get(Interval.LIFETIME, Decimal(0)))


async def book(session: AsyncSession, charges: Iterable[Charge]) -> None:
    """Adds what records cost to what was spent, in the transaction that stores them. Never waits for a lease."""
    rows = booking.sums(charges)
    if rows:
        await repository.book(session, rows)


async def rebook(session: AsyncSession, team_id: str, charges: Iterable[Charge]) -> None:
    """Books these charges, which are all of the team's, in the place of what was booked. The books are held."""
    await repository.forget_spend(session, team_id)
    await book(session, charges)


async def hold_books(session: AsyncSession) -> None:
    """Lets nobody book until the transaction ends; whoever has begun to is waited for."""
    await repository.hold_spend(session)


async def copy_budgets(session: AsyncSession, key_id: str, successor_id: str, team_id: str) -> None:
    """Binds a key's successor by the budgets of the key; what it spends is counted anew."""
    limits = (await repository.limits(session, [(LimitScope.KEY, key_id)])).get((LimitScope.KEY, key_id), {})
    if limits:
        await repository.ensure_scope(session, (LimitScope.KEY, successor_id), team_id)
    for interval, limit_usd in limits.items():
        await repository.put_budget(session, (LimitScope.KEY, successor_id), interval, limit_usd)


def _numbers(row: PriceVersion) -> dict[str, str]:
    price = price_of(row)
    return {"model": row.model_id, "input_usd": usd_text(price.input_usd),
            "cached_input_usd": usd_text(price.cached_input_usd), "output_usd": usd_text(price.output_usd)}
