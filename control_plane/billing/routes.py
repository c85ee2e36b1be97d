"""Money for operators, and the leases of edges."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing import accounts
from control_plane.billing.lending import lend
from control_plane.context import Context
from control_plane.contracts.billing import (
    BillingRequest,
    BudgetRequest,
    BudgetView,
    CreditRequest,
    CreditView,
    MoneyLeaseView,
    MoneyView,
    ReleaseRequest,
)
from control_plane.contracts.clock import utc
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import Interval, MoneyLeaseAnswer, MoneyLeaseRequest
from control_plane.contracts.operator import Page
from control_plane.identity.guards import Admin, EdgeCaller, Operator, Reader
from control_plane.paging import Paged
from control_plane.tenancy import service as tenancy

router = APIRouter(tags=["money"])

IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=200)]
TeamFilter = Annotated[str | None, Query(max_length=100, description="Only this team and its keys, by id or slug.")]
KeyFilter = Annotated[str | None, Query(max_length=100, description="Only this key.")]


@router.post("/edge/v1/money/leases")
async def leases(asked: MoneyLeaseRequest, caller: EdgeCaller, context: Context) -> MoneyLeaseAnswer:
    """Closes money leases and opens others. Safe to repeat."""
    async def work(session: AsyncSession) -> MoneyLeaseAnswer:
        return await lend(session, caller.id, asked, utc(context.clock.time_s()))

    return await context.db.run(work)


@router.post("/operator/v1/teams/{team_id}/credits", status_code=201)
async def add_credit(team_id: str, asked: CreditRequest, caller: Admin, context: Context,
                     idempotency_key: IdempotencyKey = None) -> CreditView:
    """Gives a team money, or takes some back."""
    async with context.db.begin() as session:
        team = await tenancy.team_named(session, team_id)
        return await accounts.add_credit(session, team, asked, caller.actor, idempotency_key)


@router.get("/operator/v1/teams/{team_id}/credits")
async def credits(team_id: str, _: Reader, context: Context, asked: Paged) -> Page[CreditView]:
    """A team's credits, the newest first."""
    async with context.db.begin() as session:
        return await accounts.credits(session, await tenancy.team_named(session, team_id), asked)


@router.put("/operator/v1/teams/{team_id}/billing")
async def set_billing(team_id: str, asked: BillingRequest, caller: Admin, context: Context) -> MoneyView:
    """Says how a team pays; edges know within 5 s."""
    async with context.db.begin() as session:
        team = await tenancy.team_named(session, team_id)
        return await accounts.set_billing(session, team, asked, caller.actor, utc(context.clock.time_s()))


@router.get("/operator/v1/budgets")
async def budgets(_: Reader, context: Context, asked: Paged, team: TeamFilter = None,
                  key: KeyFilter = None) -> Page[BudgetView]:
    """Budgets and what of each is spent."""
    async with context.db.begin() as session:
        return await accounts.budgets(session, asked, team, key, utc(context.clock.time_s()))


@router.put("/operator/v1/budgets/{scope}/{scope_id}/{interval}")
async def put_budget(scope: LimitScope, scope_id: str, interval: Interval, asked: BudgetRequest, caller: Operator,
                     context: Context) -> BudgetView:
    """Sets a budget; edges know within 5 s."""
    async with context.db.begin() as session:
        return await accounts.put_budget(
            session, (scope, scope_id), interval, asked.limit_usd, caller.actor, utc(context.clock.time_s()))


@router.delete("/operator/v1/budgets/{scope}/{scope_id}/{interval}", status_code=204)
async def drop_budget(scope: LimitScope, scope_id: str, interval: Interval, caller: Operator,
                      context: Context) -> None:
    """Ends a budget."""
    async with context.db.begin() as session:
        await accounts.drop_budget(session, (scope, scope_id), interval, caller.actor)


@router.get("/operator/v1/money")
async def money(_: Reader, context: Context, asked: Paged, team: TeamFilter = None) -> Page[MoneyView]:
    """How the money of everybody stands whose money is limited."""
    async with context.db.begin() as session:
        return await accounts.money(session, asked, team, utc(context.clock.time_s()))


@router.get("/operator/v1/money/leases")
async def open_leases(_: Reader, context: Context, asked: Paged) -> Page[MoneyLeaseView]:
    """Open leases, the oldest first."""
    async with context.db.begin() as session:
        return await accounts.leases(session, asked)


@router.post("/operator/v1/money/leases/{lease_id}/release")
async def release(lease_id: str, asked: ReleaseRequest, caller: Operator, context: Context) -> MoneyLeaseView:
    """Closes a lease whose edge will not give it back."""
    async with context.db.begin() as session:
        return await accounts.release(session, lease_id, asked, caller.actor)
