"""What a key's holder may see of its own account, asked by an edge on its behalf."""

from decimal import Decimal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing import service as billing
from control_plane.contracts.account import Generation, GenerationAttempt, KeyAccount, TeamCredits
from control_plane.contracts.keys import Scope
from control_plane.contracts.money import Interval
from control_plane.contracts.pricing import Price
from control_plane.contracts.usage import Outcome
from control_plane.db import database_time
from control_plane.errors import NotFound
from control_plane.tenancy import queries, repository, service
from control_plane.topology import repository as topology
from control_plane.topology.models import Datacenter
from control_plane.usage.models import UsageRow

UUID7 = 7


async def key_account(session: AsyncSession, key_id: str) -> KeyAccount:
    """A key, what it has used and what is left to it.

    Raises:
        NotFound: there is no such key.
    """
    key = await repository.key(session, key_id)
    if key is None:
        raise NotFound(f"there is no key {key_id!r}")
    spend = await billing.key_spend(session, key_id, await database_time(session))
    reset = None if spend.limit_interval is Interval.LIFETIME else spend.limit_interval
    return KeyAccount(
        key_id=key.id, team_id=key.team_id, name=key.name, hint=key.hint, scopes=[Scope(scope) for scope in key.scopes],
        expires_at=key.ends_at, limit_usd=spend.limit_usd, limit_remaining_usd=spend.remaining_usd,
        limit_reset=reset and reset.value, usage_usd=spend.total_usd,
        usage_daily_usd=spend.daily_usd, usage_weekly_usd=spend.weekly_usd, usage_monthly_usd=spend.monthly_usd)


async def team_credits(session: AsyncSession, team_id: str) -> TeamCredits:
    """What a team was credited and what it used.

    Raises:
        NotFound: there is no such team.
    """
    team = await service.team_named(session, team_id)
    return await billing.team_credits(session, team.id)


async def generation(session: AsyncSession, team_id: str, request_id: UUID) -> Generation:
    """One request of a team.

    Raises:
        NotFound: the team made none of that id, or its record has not come in yet.
    """
    row = await queries.usage_record(session, team_id, request_id) if request_id.version == UUID7 else None
    if row is None:
        raise NotFound(f"there is no generation {request_id}")
    prices = await billing.prices_of(session, [row.price_version])
    return generation_of(row, prices[row.price_version][1], await topology.every(session, Datacenter))


def generation_of(row: UsageRow, price: Price, places: dict[str, Datacenter]) -> Generation:
    """A usage record as its owner sees it. A datacenter that is no more has an empty region."""
    return Generation(
        request_id=row.id, model_id=row.model_id, created_at=row.opened_at, dialect=row.dialect,
        outcome=Outcome(row.outcome), streamed=row.streamed, http_status=row.http_status,
        prompt_tokens=row.prompt_tokens, cached_tokens=row.cached_tokens, completion_tokens=row.completion_tokens,
        reasoning_tokens=row.reasoning_tokens, cost_usd=row.cost_usd, cache_discount_usd=cache_discount_usd(row, price),
        price_version=row.price_version, finish_reason=row.finish_reason, ttft_ms=row.ttft_ms,
        duration_ms=row.duration_ms, session=row.session, service_tier=row.service_tier, resumes=row.resumes,
        attempts=[GenerationAttempt(
            datacenter_id=one["datacenter_id"], status=one["status"],
            region=places[one["datacenter_id"]].region_id if one["datacenter_id"] in places else "")
            for one in row.attempts])


def cache_discount_usd(row: UsageRow, price: Price) -> Decimal:
    """What the cached prefix saved, in USD; nothing of a request that was not billed."""
    if not row.cost_usd:
        return Decimal(0)
    return row.cached_tokens * (price.input_usd - price.cached_input_usd)
