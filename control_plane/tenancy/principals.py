"""Whom a key speaks for, with everything that binds it: what an edge needs to serve it without asking again."""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing.service import money_scopes
from control_plane.contracts.keys import LimitScope, Principal, RateLimit, Scope
from control_plane.contracts.signing import SigningKey
from control_plane.tenancy import repository, service
from control_plane.tenancy.models import KeyLimit
from control_plane.tenancy.salt import cache_salt


async def principal_of(session: AsyncSession, digest: str, signing_key: SigningKey) -> Principal:
    """Whom the key with this digest speaks for.

    Raises:
        NotFound: nobody issued it, or it was revoked or has ended.
    """
    key = await service.living_key(session, digest)
    team = await service.team_named(session, key.team_id)
    limits = [*await repository.limits_of(session, key.team_id, None),
              *await repository.limits_of(session, key.team_id, key.id)]
    return Principal(
        key_id=key.id, team_id=key.team_id, key_name=key.name, scopes=[Scope(scope) for scope in key.scopes],
        expires_at_s=None if key.ends_at is None else key.ends_at.timestamp(),
        limits=[rate_limit(limit) for limit in limits],
        money_scopes=await money_scopes(session, key.team_id, key.id), allowed_models=key.allowed_models,
        regions=both(team.regions, key.regions), cache_salt=cache_salt(signing_key, key.team_id))


def both(team: Sequence[str] | None, key: Sequence[str] | None) -> list[str] | None:
    """The regions that team and key allow; none of either allows any. An empty list allows nothing."""
    if team is None or key is None:
        allowed = key if team is None else team
        return None if allowed is None else sorted(allowed)
    return sorted(set(team) & set(key))


def rate_limit(limit: KeyLimit) -> RateLimit:
    """The stored limit as edges enforce it."""
    scope = LimitScope.TEAM if limit.key_id is None else LimitScope.KEY
    return RateLimit(
        scope=scope, scope_id=limit.key_id or limit.team_id, model_id=limit.model_id,
        requests_per_minute=limit.requests_per_minute, tokens_per_minute=limit.tokens_per_minute,
        concurrency=limit.concurrency)
