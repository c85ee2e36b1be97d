"""SQL of the billing slice: prices, limits, what was spent, and leases."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from sqlalchemy import Text, and_, cast, delete, func, literal, or_, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing.models import Budget, Credit, MoneyLease, MoneyScope, PriceVersion, Spend
from control_plane.billing.standing import ScopeKey
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import BillingMode, Interval
from control_plane.contracts.topology import PriceDocument

CLOSED_FOR = timedelta(days=7)
SPEND_KEY = ("scope", "scope_id", "interval", "window_start")


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


async def ensure_scope(session: AsyncSession, key: ScopeKey, team_id: str) -> MoneyScope:
    """The scope's row, made if it is missing, and locked."""
    await session.execute(insert(MoneyScope).values(
        scope=key[0], scope_id=key[1], team_id=team_id).on_conflict_do_nothing())
    (row,) = await lock_scopes(session, [key])
    return row


async def lock_scopes(session: AsyncSession, keys: Collection[ScopeKey]) -> Sequence[MoneyScope]:
    """The rows of these scopes, held until the transaction ends; in id order, so that no two wait for each other. A
    scope that nobody ever limited has none, and nothing to guard."""
    return (await session.execute(
        select(MoneyScope).where(tuple_(MoneyScope.scope, MoneyScope.scope_id).in_(keys))
        .order_by(MoneyScope.scope, MoneyScope.scope_id).with_for_update()
        .execution_options(populate_existing=True))).scalars().all()


async def scopes(session: AsyncSession, keys: Collection[ScopeKey]) -> Sequence[MoneyScope]:
    """The same rows, only read."""
    return (await session.execute(
        select(MoneyScope).where(tuple_(MoneyScope.scope, MoneyScope.scope_id).in_(keys)))).scalars().all()


async def limits(session: AsyncSession, keys: Collection[ScopeKey]) -> dict[ScopeKey, dict[Interval, Decimal]]:
    """The budgets of these scopes."""
    found: dict[ScopeKey, dict[Interval, Decimal]] = {}
    rows = await session.execute(
        select(Budget.scope, Budget.scope_id, Budget.interval, Budget.limit_usd)
        .where(tuple_(Budget.scope, Budget.scope_id).in_(keys)))
    for row in rows:
        found.setdefault((row.scope, row.scope_id), {})[row.interval] = row.limit_usd
    return found


async def credited(session: AsyncSession, team_ids: Collection[str]) -> dict[str, Decimal]:
    """The sum of each team's credits."""
    rows = await session.execute(select(Credit.team_id, func.sum(Credit.amount_usd).label("total")).where(
        Credit.team_id.in_(team_ids)).group_by(Credit.team_id))
    return {row.team_id: row.total for row in rows}


async def lent(session: AsyncSession, keys: Collection[ScopeKey]) -> dict[ScopeKey, tuple[int, int]]:
    """Nano-dollars in open leases, and how many leases that are."""
    rows = await session.execute(
        select(MoneyLease.scope, MoneyLease.scope_id, cast(func.sum(MoneyLease.granted_nusd), Text).label("total"),
               func.count().label("leases"))
        .where(tuple_(MoneyLease.scope, MoneyLease.scope_id).in_(keys), MoneyLease.closed_at.is_(None))
        .group_by(MoneyLease.scope, MoneyLease.scope_id))
    return {(row.scope, row.scope_id): (int(row.total), row.leases) for row in rows}


async def spent(session: AsyncSession, keys: Collection[ScopeKey],
                windows: Mapping[Interval, datetime]) -> dict[ScopeKey, dict[Interval, Decimal]]:
    """What was booked in these windows."""
    found: dict[ScopeKey, dict[Interval, Decimal]] = {}
    rows = await session.execute(
        select(Spend.scope, Spend.scope_id, Spend.interval, Spend.spent_usd)
        .where(tuple_(Spend.scope, Spend.scope_id).in_(keys),
               tuple_(Spend.interval, Spend.window_start).in_(windows.items())))
    for row in rows:
        found.setdefault((row.scope, row.scope_id), {})[row.interval] = row.spent_usd
    return found


async def book(session: AsyncSession, rows: Sequence[Mapping[str, str]]) -> None:
    """Adds to `spend`, in key order so that two batches cannot deadlock; one JSON parameter for any number of rows."""
    table = Spend.__table__
    document = cast(literal(msgspec.json.encode(rows).decode(), Text), JSONB)
    columns = [table.c[name] for name in (*SPEND_KEY, "team_id", "spent_usd")]
    source = func.jsonb_to_recordset(document).table_valued(*columns, name="added").render_derived(with_types=True)
    chosen = select(*(source.c[column.name] for column in columns)).order_by(*(source.c[name] for name in SPEND_KEY))
    adding = insert(Spend).from_select([column.name for column in columns], chosen)
    await session.execute(adding.on_conflict_do_update(
        index_elements=SPEND_KEY, set_={"spent_usd": Spend.spent_usd + adding.excluded.spent_usd}))


async def hold_spend(session: AsyncSession) -> None:
    """Lets nobody book until the transaction ends; whoever has begun to is waited for."""
    await session.execute(text("LOCK TABLE spend IN SHARE ROW EXCLUSIVE MODE"))


async def forget_spend(session: AsyncSession, team_id: str) -> None:
    """Deletes all that was booked for a team and its keys."""
    await session.execute(delete(Spend).where(Spend.team_id == team_id))


async def put_budget(session: AsyncSession, key: ScopeKey, interval: Interval, limit_usd: Decimal) -> None:
    await session.execute(insert(Budget).values(
        scope=key[0], scope_id=key[1], interval=interval, limit_usd=limit_usd,
    ).on_conflict_do_update(index_elements=["scope", "scope_id", "interval"], set_={"limit_usd": limit_usd}))


async def drop_budget(session: AsyncSession, key: ScopeKey, interval: Interval) -> Decimal | None:
    """The limit of the budget, which is gone; none if there was none."""
    return (await session.execute(delete(Budget).where(
        Budget.scope == key[0], Budget.scope_id == key[1], Budget.interval == interval,
    ).returning(Budget.limit_usd))).scalar_one_or_none()


async def add_credit(session: AsyncSession, values: Mapping[str, Any]) -> Credit | None:
    """The new credit; none if this actor gave one under the same idempotency key."""
    statement = insert(Credit).values(**values).on_conflict_do_nothing(
        index_elements=["actor", "idempotency_key"]).returning(Credit)
    return (await session.execute(statement)).scalar_one_or_none()


async def credit_by_idempotency_key(session: AsyncSession, actor: str, key: str) -> Credit:
    return (await session.execute(
        select(Credit).where(Credit.actor == actor, Credit.idempotency_key == key))).scalar_one()


async def leases(session: AsyncSession, ids: Collection[str]) -> Sequence[MoneyLease]:
    return (await session.execute(
        select(MoneyLease).where(MoneyLease.id.in_(ids)).execution_options(populate_existing=True))).scalars().all()


async def add_leases(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> int:
    """Stores those whose id is new; how many are."""
    statement = insert(MoneyLease).values(list(rows)).on_conflict_do_nothing().returning(MoneyLease.id)
    return len((await session.execute(statement)).all())


async def add_closed(session: AsyncSession, edge_id: str, boot_id: str, ids: Collection[str]) -> None:
    """Remembers ids as closed before anybody opens them."""
    rows = [{"id": lease_id, "edge_id": edge_id, "boot_id": boot_id, "granted_nusd": 0, "closed_at": func.now()}
            for lease_id in sorted(ids)]
    await session.execute(insert(MoneyLease).values(rows).on_conflict_do_nothing())


async def close_leases(session: AsyncSession, edge_id: str, ids: Collection[str]) -> None:
    """Closes the edge's open leases among `ids`."""
    await _close(session, and_(MoneyLease.edge_id == edge_id, MoneyLease.id.in_(ids)))


async def close_earlier_boots(session: AsyncSession, edge_id: str, boot_id: str) -> None:
    """Closes what other boots of the edge opened before this boot opened anything: a late request of a boot that is
    over never closes its successor's leases."""
    own = select(func.min(MoneyLease.seq)).where(MoneyLease.edge_id == edge_id, MoneyLease.boot_id == boot_id)
    earlier = or_(own.scalar_subquery().is_(None), MoneyLease.seq < own.scalar_subquery())
    await _close(session, and_(MoneyLease.edge_id == edge_id, MoneyLease.boot_id != boot_id, earlier))


async def count_open_leases(session: AsyncSession) -> int:
    return (await session.execute(select(func.count()).select_from(MoneyLease).where(
        MoneyLease.closed_at.is_(None)))).scalar_one()


async def close_all_leases(session: AsyncSession) -> None:
    """Closes every open lease, whoever holds it; edges learn of it when they give theirs back."""
    await session.execute(update(MoneyLease).where(MoneyLease.closed_at.is_(None)).values(closed_at=func.now()))


async def release_lease(session: AsyncSession, lease_id: str) -> MoneyLease | None:
    """The lease, closed just now; none if it was not open."""
    return (await session.execute(
        update(MoneyLease).where(MoneyLease.id == lease_id, MoneyLease.closed_at.is_(None))
        .values(closed_at=func.now()).returning(MoneyLease))).scalar_one_or_none()


async def forget_closed(session: AsyncSession, edge_id: str) -> None:
    """Deletes the edge's leases that were closed a week ago: nobody repeats an ask for so long."""
    await session.execute(delete(MoneyLease).where(
        MoneyLease.edge_id == edge_id, MoneyLease.closed_at < func.now() - CLOSED_FOR))


async def _close(session: AsyncSession, which: Any) -> None:
    held = select(MoneyLease.id).where(which, MoneyLease.closed_at.is_(None)).order_by(MoneyLease.id).with_for_update()
    await session.execute(update(MoneyLease).where(MoneyLease.id.in_(held)).values(closed_at=func.now()))
