"""What operators do with money: credits, how a team pays, budgets, and leases that nobody will give back."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import paging
from control_plane.audit import service as audit
from control_plane.billing import queries, repository, service, views
from control_plane.billing.budget import check_order
from control_plane.billing.lease import usd
from control_plane.billing.models import Credit, MoneyLease
from control_plane.billing.standing import ScopeKey
from control_plane.contracts import ids
from control_plane.contracts.billing import (
    BillingRequest,
    BudgetView,
    CreditRequest,
    CreditView,
    MoneyLeaseView,
    MoneyView,
    ReleaseRequest,
)
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import BillingMode, Interval
from control_plane.contracts.operator import Page
from control_plane.contracts.pricing import usd_text
from control_plane.db import database_time
from control_plane.errors import Conflict, NotFound, Refusal, UnsafeChange
from control_plane.routing import repository as routing
from control_plane.tenancy import service as tenancy
from control_plane.tenancy.changes import note_change
from control_plane.tenancy.models import Team
from control_plane.topology.status import LIVE_FOR


async def add_credit(session: AsyncSession, team: Team, asked: CreditRequest, actor: str,
                     idempotency_key: str | None) -> CreditView:
    """Gives a team money, or takes some back; a repeat with the same idempotency key gives nothing more.

    Raises:
        Refusal: the amount is nothing.
        Conflict: the key was used for another credit.
    """
    if not asked.amount_usd:
        raise Refusal("a credit of $0 changes nothing; name an amount", code="no_amount")
    await repository.ensure_scope(session, (LimitScope.TEAM, team.id), team.id)
    credit = await repository.add_credit(session, {
        "id": ids.new_id("credit"), "team_id": team.id, "amount_usd": asked.amount_usd, "reason": asked.reason,
        "actor": actor, "idempotency_key": idempotency_key})
    if credit is None:
        return _first_credit(await repository.credit_by_idempotency_key(session, actor, idempotency_key or ""),
                             team, asked)
    audit.record(session, actor=actor, action="team.credit", target=f"team:{team.id}", reason=asked.reason,
                 after={"credit": credit.id, "amount_usd": usd_text(asked.amount_usd)})
    return views.credit(credit)


async def credits(session: AsyncSession, team: Team, asked: paging.Asked) -> Page[CreditView]:
    """A page of a team's credits, the newest first."""
    found = await queries.credits(session, team.id, asked.limit + 1, asked.cursor)
    return paging.page([views.credit(credit) for credit in found], asked, key=lambda credit: credit.id)


async def set_billing(session: AsyncSession, team: Team, asked: BillingRequest, actor: str,
                      now: datetime) -> MoneyView:
    """Says how a team pays. What it spent until now stays with the mode in which it spent it.

    Raises:
        Refusal: an overdraft without a balance.
    """
    if asked.overdraft_usd and asked.mode is BillingMode.POSTPAID:
        raise Refusal("a postpaid team has no balance to overdraw; leave the overdraft out", code="no_balance")
    key = (LimitScope.TEAM, team.id)
    row = await repository.ensure_scope(session, key, team.id)
    standing = (await service.standings(session, [key], now))[key]
    before = {"mode": row.mode, "overdraft_usd": usd_text(row.overdraft_usd)}
    row.consumed_usd, row.counted_from_usd = standing.used_usd, standing.spent(Interval.LIFETIME)
    row.mode, row.overdraft_usd = asked.mode, asked.overdraft_usd
    audit.record(session, actor=actor, action="team.billing", target=f"team:{team.id}", before=before,
                 after={"mode": asked.mode, "overdraft_usd": usd_text(asked.overdraft_usd)})
    await session.flush()
    await note_change(session, team.id)
    standing = (await service.standings(session, [key], now))[key]
    return views.money(key, team.id, standing, now)


async def put_budget(session: AsyncSession, key: ScopeKey, interval: Interval, limit_usd: Decimal, actor: str,
                     now: datetime) -> BudgetView:
    """Sets a budget, in the place of the one of this interval.

    Raises:
        NotFound: no such team or key.
        Refusal: a wider interval would have a smaller limit, or a narrower one a larger.
    """
    key, team_id = await _owner(session, key)
    await repository.ensure_scope(session, key, team_id)
    limits = (await repository.limits(session, [key])).get(key, {})
    check_order({**limits, interval: limit_usd})
    await repository.put_budget(session, key, interval, limit_usd)
    _note_budget(session, actor, "budget.set", key, interval, limits.get(interval), limit_usd)
    await note_change(session, team_id)
    standing = (await service.standings(session, [key], now))[key]
    return views.budget(key, interval, standing, now)


async def drop_budget(session: AsyncSession, key: ScopeKey, interval: Interval, actor: str) -> None:
    """Ends a budget; ending it twice does no harm.

    Raises:
        NotFound: no such team or key.
    """
    key, team_id = await _owner(session, key)
    await repository.lock_scopes(session, [key])
    former = await repository.drop_budget(session, key, interval)
    if former is not None:
        _note_budget(session, actor, "budget.remove", key, interval, former, None)
        await note_change(session, team_id)


async def budgets(session: AsyncSession, asked: paging.Asked, team: str | None, key_id: str | None,
                  now: datetime) -> Page[BudgetView]:
    """A page of the budgets: all, a team's with its keys', or one key's.

    Raises:
        NotFound: no such team.
    """
    team_id = (await tenancy.team_named(session, team)).id if team else None
    start = after(asked.cursor, LimitScope, str, Interval)
    rows = await queries.budgets(session, asked.limit + 1, start, team_id, key_id)
    standings = await service.standings(session, {(row.scope, row.scope_id) for row in rows}, now) if rows else {}
    shown = [views.budget((row.scope, row.scope_id), row.interval, standings[row.scope, row.scope_id], now)
             for row in rows]
    return paging.page(shown, asked, key=lambda view: f"{view.scope}:{view.scope_id}:{view.interval}")


async def money(session: AsyncSession, asked: paging.Asked, team: str | None, now: datetime) -> Page[MoneyView]:
    """A page of everybody whose money is limited, by team.

    Raises:
        NotFound: no such team.
    """
    team_id = (await tenancy.team_named(session, team)).id if team else None
    rows = await queries.scopes(session, asked.limit + 1, after(asked.cursor, str, LimitScope, str), team_id)
    standings = await service.standings(session, {(row.scope, row.scope_id) for row in rows}, now) if rows else {}
    shown = [views.money((row.scope, row.scope_id), row.team_id, standings[row.scope, row.scope_id], now)
             for row in rows]
    return paging.page(shown, asked, key=lambda view: f"{view.team_id}:{view.scope}:{view.scope_id}")


async def leases(session: AsyncSession, asked: paging.Asked) -> Page[MoneyLeaseView]:
    """A page of the open leases, the oldest first."""
    rows = await queries.open_leases(session, asked.limit + 1, after(asked.cursor, int))
    page = paging.page(rows, asked, key=lambda row: str(row.seq))
    return Page(data=[views.lease(row) for row in page.data], next_cursor=page.next_cursor)


async def release(session: AsyncSession, lease_id: str, asked: ReleaseRequest, actor: str) -> MoneyLeaseView:
    """Closes a lease whose edge will not.

    Raises:
        NotFound: there is no such lease open.
        UnsafeChange: the edge lives and may be spending it.
    """
    row = await repository.release_lease(session, lease_id)
    if row is None:
        raise NotFound(f"there is no open lease {lease_id!r}")
    if not asked.force:
        await _check_unused(session, row)
    view = views.lease(row)
    audit.record(session, actor=actor, action="lease.release", target=f"lease:{lease_id}", reason=asked.reason,
                 before=view.model_dump(mode="json"), after={"forced": asked.force})
    return view


def after(cursor: str | None, *kinds: Callable[[str], Any]) -> Any:
    """The key that a cursor holds, each part as one of `kinds`; none without a cursor.

    Raises:
        Refusal: the cursor is none of ours.
    """
    if cursor is None:
        return None
    try:
        return tuple(kind(part) for kind, part in zip(kinds, cursor.split(":"), strict=True))
    except ValueError as error:
        raise Refusal("the cursor is none of ours", code="bad_cursor") from error


def _first_credit(credit: Credit, team: Team, asked: CreditRequest) -> CreditView:
    if (credit.team_id, credit.amount_usd, credit.reason) != (team.id, asked.amount_usd, asked.reason):
        raise Conflict("this idempotency key was used for another credit; use a new one", code="idempotency_key_used")
    return views.credit(credit)


async def _owner(session: AsyncSession, key: ScopeKey) -> tuple[ScopeKey, str]:
    """The scope by its id, a team's slug resolved, and its team."""
    scope, scope_id = key
    if scope is LimitScope.TEAM:
        team_id = (await tenancy.team_named(session, scope_id)).id
        return (scope, team_id), team_id
    found = await tenancy.teams_of_keys(session, [scope_id])
    if scope_id not in found:
        raise NotFound(f"there is no key {scope_id!r}")
    return key, found[scope_id]


async def _check_unused(session: AsyncSession, lease: MoneyLease) -> None:
    now = await database_time(session)
    for edge in await routing.edges(session):
        if (edge.id, edge.boot_id) == (lease.edge_id, lease.boot_id) and now - edge.last_seen_at < LIVE_FOR:
            raise UnsafeChange(
                "the edge lives and may be spending this lease; it gives it back by itself. Stop it first, or overrule "
                "with force", rule="lease_in_use", numbers={
                    "edge": edge.id, "last_seen_age_s": f"{(now - edge.last_seen_at).total_seconds():.0f}",
                    "granted_usd": usd_text(usd(lease.granted_nusd))})


def _note_budget(session: AsyncSession, actor: str, action: str, key: ScopeKey, interval: Interval,
                 before_usd: Decimal | None, after_usd: Decimal | None) -> None:
    before, then = ({interval.value: usd_text(limit_usd)} if limit_usd is not None else None
                    for limit_usd in (before_usd, after_usd))
    audit.record(session, actor=actor, action=action, target=f"{key[0]}:{key[1]}", before=before, after=then)
