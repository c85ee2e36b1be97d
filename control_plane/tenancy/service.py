"""Makes teams and keys, answers edges who a key is, and takes keys back."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import paging
from control_plane.audit import service as audit
from control_plane.contracts import ids
from control_plane.contracts.keys import Principal, Revocation, Scope
from control_plane.contracts.operator import KeyCreated, KeyRequest, KeyView, Page, TeamRequest, TeamView
from control_plane.db import database_time, notify
from control_plane.errors import Conflict, NotFound, Refusal
from control_plane.tenancy import repository
from control_plane.tenancy.models import ApiKey, Team

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
    return _team_view(team)


async def teams(session: AsyncSession, asked: paging.Asked) -> Page[TeamView]:
    """A page of all teams, the oldest first."""
    found = await repository.teams(session, asked.limit + 1, asked.cursor)
    return paging.page([_team_view(team) for team in found], asked, key=lambda team: team.id)


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
        Refusal: it would have expired already, or its end has no time zone.
    """
    now = await database_time(session)
    if asked.expires_at is not None and (asked.expires_at.tzinfo is None or asked.expires_at <= now):
        raise Refusal("expires_at must be a time to come, with its time zone", code="bad_expiry")
    secret = ids.new_secret(f"sk_meridian_{environment}")
    key = ApiKey(
        id=ids.new_id("key"), team_id=team.id, name=asked.name, digest=ids.secret_digest(secret),
        hint=ids.secret_hint(secret), scopes=sorted({scope.value for scope in asked.scopes}), created_by=actor,
        created_at=now, expires_at=asked.expires_at, revoked_at=None)
    session.add(key)
    audit.record(session, actor=actor, action="key.create", target=f"key:{key.id}",
                 after={"team": team.id, "name": key.name, "scopes": key.scopes, "expires_at": _text(key.expires_at)})
    return KeyCreated(**_key_view(key).model_dump(), secret=secret)


async def keys(session: AsyncSession, team_id: str, asked: paging.Asked) -> Page[KeyView]:
    """A page of a team's keys, the oldest first, without their secrets."""
    found = await repository.keys(session, team_id, asked.limit + 1, asked.cursor)
    return paging.page([_key_view(key) for key in found], asked, key=lambda key: key.id)


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


async def principal_of(session: AsyncSession, digest: str) -> Principal:
    """Whom the key with this digest speaks for.

    Raises:
        NotFound: nobody issued it, or it was revoked or has expired.
    """
    key = await repository.living_key(session, digest)
    if key is None:
        raise NotFound("no such key", code="unknown_key")
    return Principal(
        key_id=key.id, team_id=key.team_id, key_name=key.name, scopes=[Scope(scope) for scope in key.scopes],
        expires_at_s=None if key.expires_at is None else key.expires_at.timestamp())


async def revocations_after(session: AsyncSession, seq: int, limit: int) -> list[Revocation]:
    """The next revocations of the stream that an edge has not seen, in commit order."""
    found = await repository.revocations(session, seq, limit)
    return [Revocation(seq=row.seq, digest=row.digest) for row in found]


async def teams_of_keys(session: AsyncSession, key_ids: Collection[str]) -> dict[str, str]:
    """Team by key; a key that was never made is missing."""
    return await repository.teams_of_keys(session, key_ids)


def _team_view(team: Team) -> TeamView:
    return TeamView(id=team.id, slug=team.slug, name=team.name, created_at=team.created_at)


def _key_view(key: ApiKey) -> KeyView:
    return KeyView(
        id=key.id, team_id=key.team_id, name=key.name, hint=key.hint, scopes=[Scope(scope) for scope in key.scopes],
        created_at=key.created_at, expires_at=key.expires_at, revoked_at=key.revoked_at)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
