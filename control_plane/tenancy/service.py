"""Makes teams and keys, gives keys new secrets, and takes keys back."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import paging
from control_plane.audit import service as audit
from control_plane.billing import service as billing
from control_plane.contracts import ids
from control_plane.contracts.keys import Revocation
from control_plane.contracts.operator import KeyCreated, KeyRequest, KeyView, Page, TeamRequest, TeamView
from control_plane.contracts.tenancy import RotationRequest
from control_plane.db import database_time, notify
from control_plane.errors import Conflict, NotFound, Refusal
from control_plane.tenancy import policy, repository
from control_plane.tenancy.models import ApiKey, Team
from control_plane.tenancy.views import key_view, team_view

REVOCATIONS_CHANNEL = "revocations"


async def create_team(session: AsyncSession, asked: TeamRequest, actor: str) -> TeamView:
    """A new team.

    Raises:
        Conflict: the slug is taken.
    """
    team = await repository.add_team(session, ids.new_id("team"), asked.slug, asked.name)
    if team is None:
        raise Conflict(f"there is a team {asked.slug!r} already; choose another slug", code="slug_taken")
    audit.record(session, actor=actor, action="team.create", target=f"team:{team.id}",
                 after={"slug": team.slug, "name": team.name})
    return team_view(team)


async def teams(session: AsyncSession, asked: paging.Asked) -> Page[TeamView]:
    """A page of all teams, the oldest first."""
    found = await repository.teams(session, asked.limit + 1, asked.cursor)
    return paging.page([team_view(team) for team in found], asked, key=lambda team: team.id)


async def team_named(session: AsyncSession, id_or_slug: str) -> Team:
    """The team with this id or slug.

    Raises:
        NotFound: there is none.
    """
    team = await repository.team(session, id_or_slug)
    if team is None:
        raise NotFound(f"there is no team {id_or_slug!r}")
    return team


async def create_key(session: AsyncSession, team: Team, asked: KeyRequest, environment: str, actor: str) -> KeyCreated:
    """A new key of `team`; its secret is in the answer and nowhere else.

    Raises:
        Refusal: it would have expired already, its end has no time zone, or no region would be left to it.
        NotFound: it names a model or a region that there is not.
    """
    now = await database_time(session)
    if asked.expires_at is not None and (asked.expires_at.tzinfo is None or asked.expires_at <= now):
        raise Refusal("expires_at must be a time to come, with its time zone", code="bad_expiry")
    await policy.check_models(session, asked.allowed_models)
    await policy.check_regions(session, asked.regions, within=team.regions)
    key = ApiKey(
        team_id=team.id, name=asked.name, scopes=sorted({scope.value for scope in asked.scopes}), created_by=actor,
        created_at=now, expires_at=asked.expires_at, revoked_at=None, allowed_models=asked.allowed_models,
        regions=asked.regions)
    created = _with_secret(session, key, environment)
    audit.record(session, actor=actor, action="key.create", target=f"key:{key.id}", after=_audited(key))
    return created


async def rotate_key(session: AsyncSession, key_id: str, asked: RotationRequest, environment: str,
                     actor: str) -> KeyCreated:
    """A new key with all that binds this one, and with a secret of its own; this one ends after the grace.

    Raises:
        NotFound: there is no such key alive.
        Conflict: it was rotated before and is in its grace.
    """
    key = await repository.lock_living_key(session, key_id)
    if key is None:
        raise NotFound(f"there is no living key {key_id!r}")
    if key.revoke_at is not None:
        raise Conflict(f"key {key_id!r} was rotated already and ends at {key.revoke_at.isoformat()}; "
                       "rotate its successor, or revoke it", code="already_rotated")
    now = await database_time(session)
    successor = ApiKey(
        team_id=key.team_id, name=key.name, scopes=key.scopes, created_by=actor, created_at=now,
        expires_at=key.expires_at, revoked_at=None, allowed_models=key.allowed_models, regions=key.regions,
        rotated_from=key.id)
    created = _with_secret(session, successor, environment)
    await session.flush()
    await policy.copy_limits(session, key, successor)
    await billing.copy_budgets(session, key.id, successor.id, key.team_id)
    key.revoke_at = now + timedelta(seconds=asked.grace_s)
    if not asked.grace_s:
        key.revoked_at = now
    await repository.add_revocation(session, key, key.revoke_at if asked.grace_s else None)
    audit.record(session, actor=actor, action="key.rotate", target=f"key:{key.id}", before=_audited(key),
                 after={**_audited(successor), "successor": successor.id, "revoke_at": _text(key.revoke_at)})
    await notify(session, REVOCATIONS_CHANNEL)
    return created


async def keys(session: AsyncSession, team_id: str, asked: paging.Asked) -> Page[KeyView]:
    """A page of a team's keys, the oldest first, without their secrets."""
    found = await repository.keys(session, team_id, asked.limit + 1, asked.cursor)
    return paging.page([key_view(key) for key in found], asked, key=lambda key: key.id)


async def revoke_key(session: AsyncSession, key_id: str, actor: str) -> None:
    """Takes a key back for good and tells the edges.

    Raises:
        NotFound: there is no such key alive.
    """
    key = await repository.revoke_key(session, key_id)
    if key is None:
        raise NotFound(f"there is no living key {key_id!r}")
    await repository.add_revocation(session, key)
    audit.record(session, actor=actor, action="key.revoke", target=f"key:{key.id}", before={"team": key.team_id})
    await notify(session, REVOCATIONS_CHANNEL)


async def end_forgotten(session: AsyncSession, digests: Sequence[str], edge_id: str) -> None:
    """Ends keys that an edge knows ended, and that an older copy of the database has brought back."""
    for key_id in await repository.living_keys_of(session, digests):
        key = await repository.revoke_key(session, key_id)
        if key is None:
            continue
        await repository.add_revocation(session, key)
        audit.record(session, actor=f"machine:{edge_id}", action="key.revoke", target=f"key:{key_id}",
                     reason="the edge knows that it ended before the database was restored",
                     before={"team": key.team_id})
        await notify(session, REVOCATIONS_CHANNEL)


async def living_key(session: AsyncSession, digest: str) -> ApiKey:
    """The key with this digest.

    Raises:
        NotFound: nobody issued it, or it was revoked or has ended.
    """
    key = await repository.living_key(session, digest)
    if key is None:
        raise NotFound("no such key", code="unknown_key")
    return key


async def revocations_after(session: AsyncSession, seq: int, limit: int) -> list[Revocation]:
    """The next revocations of the stream that an edge has not seen, in commit order."""
    found = await repository.revocations(session, seq, limit)
    return [Revocation(seq=row.seq, digest=row.digest,
                       effective_at_s=None if row.effective_at is None else row.effective_at.timestamp())
            for row in found]


async def teams_of_keys(session: AsyncSession, key_ids: Collection[str]) -> dict[str, str]:
    """Team by key; a key that was never made is missing."""
    return await repository.teams_of_keys(session, key_ids)


def _with_secret(session: AsyncSession, key: ApiKey, environment: str) -> KeyCreated:
    """Gives a new key its name and its secret, which is in the answer and nowhere else."""
    secret = ids.new_secret(f"sk_meridian_{environment}")
    key.id, key.digest, key.hint = ids.new_id("key"), ids.secret_digest(secret), ids.secret_hint(secret)
    session.add(key)
    return KeyCreated(**key_view(key).model_dump(), secret=secret)


def _audited(key: ApiKey) -> dict[str, Any]:
    return {"team": key.team_id, "name": key.name, "scopes": key.scopes, "expires_at": _text(key.expires_at),
            "allowed_models": key.allowed_models, "regions": key.regions}


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
