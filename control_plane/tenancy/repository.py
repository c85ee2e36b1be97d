"""SQL of the tenancy slice. Whatever belongs to a team is asked for with that team."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.tenancy.models import ApiKey, KeyLimit, KeyRevocation, RevocationHead, Team


async def add_team(session: AsyncSession, team_id: str, slug: str, name: str) -> Team | None:
    """The new team; none if the slug is taken."""
    statement = insert(Team).values(id=team_id, slug=slug, name=name).on_conflict_do_nothing(
        index_elements=["slug"]).returning(Team)
    return (await session.execute(statement)).scalar_one_or_none()


async def team(session: AsyncSession, id_or_slug: str) -> Team | None:
    return (await session.execute(
        select(Team).where(or_(Team.id == id_or_slug, Team.slug == id_or_slug)))).scalar_one_or_none()


async def teams(session: AsyncSession, limit: int, after_id: str | None) -> Sequence[Team]:
    query = select(Team).order_by(Team.id).limit(limit)
    if after_id is not None:
        query = query.where(Team.id > after_id)
    return (await session.execute(query)).scalars().all()


async def keys(session: AsyncSession, team_id: str, limit: int, after_id: str | None) -> Sequence[ApiKey]:
    query = select(ApiKey).where(ApiKey.team_id == team_id).order_by(ApiKey.id).limit(limit)
    if after_id is not None:
        query = query.where(ApiKey.id > after_id)
    return (await session.execute(query)).scalars().all()


async def living_key(session: AsyncSession, digest: str) -> ApiKey | None:
    """The key with this digest, unless it was revoked or has ended."""
    return (await session.execute(select(ApiKey).where(ApiKey.digest == digest, *_alive()))).scalar_one_or_none()


async def key(session: AsyncSession, key_id: str) -> ApiKey | None:
    return await session.get(ApiKey, key_id)


async def lock_living_key(session: AsyncSession, key_id: str) -> ApiKey | None:
    """The key, held until the transaction ends; none if it was revoked or has ended."""
    query = select(ApiKey).where(ApiKey.id == key_id, *_alive()).with_for_update(key_share=True)
    return (await session.execute(query.execution_options(populate_existing=True))).scalar_one_or_none()


async def teams_of_keys(session: AsyncSession, key_ids: Collection[str]) -> dict[str, str]:
    """Team by key, revoked and expired keys included; a key that was never made is missing."""
    rows = await session.execute(select(ApiKey.id, ApiKey.team_id).where(ApiKey.id.in_(key_ids)))
    return {row.id: row.team_id for row in rows}


async def revoke_key(session: AsyncSession, key_id: str) -> ApiKey | None:
    """The key, revoked just now; none if it was not alive."""
    statement = update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None)).values(
        revoked_at=func.now()).returning(ApiKey)
    return (await session.execute(statement)).scalar_one_or_none()


async def add_revocation(session: AsyncSession, key: ApiKey, effective_at: datetime | None = None) -> None:
    """Adds `key` to the stream: it ends at once, or at `effective_at`."""
    seq = await _next_seq(session)
    session.add(KeyRevocation(seq=seq, key_id=key.id, digest=key.digest, effective_at=effective_at))


async def revocations(session: AsyncSession, after: int, limit: int) -> Sequence[KeyRevocation]:
    return (await session.execute(select(KeyRevocation).where(KeyRevocation.seq > after).order_by(
        KeyRevocation.seq).limit(limit))).scalars().all()


async def living_keys_of(session: AsyncSession, digests: Sequence[str]) -> Sequence[str]:
    """The ids of those of the keys that have not ended."""
    return (await session.execute(select(ApiKey.id).where(
        ApiKey.digest.in_(digests), ApiKey.revoked_at.is_(None),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > func.now())).order_by(ApiKey.id))).scalars().all()


async def mark_changed(session: AsyncSession, team_id: str) -> None:
    """Gives the team the next number. The team's row is locked before the head, here and wherever both are."""
    await session.execute(select(Team.id).where(Team.id == team_id).with_for_update(key_share=True))
    seq = await _next_seq(session)
    await session.execute(update(Team).where(Team.id == team_id).values(changed_seq=seq))


async def changed_teams(session: AsyncSession, after: int, limit: int) -> Sequence[Any]:
    """Id and number of the teams that changed after a number."""
    return (await session.execute(select(Team.id, Team.changed_seq).where(Team.changed_seq > after).order_by(
        Team.changed_seq).limit(limit))).all()


async def put_limit(session: AsyncSession, values: dict[str, Any]) -> KeyLimit:
    """Stores a limit in the place of the one that bound the same before; that one's id stays."""
    figures = {name: values[name] for name in ("requests_per_minute", "tokens_per_minute", "concurrency")}
    statement = insert(KeyLimit).values(**values).on_conflict_do_update(
        index_elements=["team_id", "key_id", "model_id"], set_=figures).returning(KeyLimit)
    return (await session.execute(statement, execution_options={"populate_existing": True})).scalar_one()


async def drop_limit(session: AsyncSession, team_id: str, key_id: str | None, model_id: str | None) -> KeyLimit | None:
    """The limit that bound exactly this, gone; none if there was none."""
    statement = delete(KeyLimit).where(*_bound(team_id, key_id), KeyLimit.model_id.is_not_distinct_from(model_id))
    return (await session.execute(statement.returning(KeyLimit))).scalar_one_or_none()


async def limits_of(session: AsyncSession, team_id: str, key_id: str | None) -> Sequence[KeyLimit]:
    """The limits of exactly this key, or with none of exactly the team, in one order. They are few: the service bounds
    them."""
    return (await session.execute(select(KeyLimit).where(*_bound(team_id, key_id)).order_by(
        KeyLimit.model_id.nulls_first()))).scalars().all()


async def limits(session: AsyncSession, limit: int, after_id: str | None, team_id: str | None,
                 key_id: str | None) -> Sequence[KeyLimit]:
    """All limits by id, those of a team with its keys', or those of one key."""
    query = select(KeyLimit).order_by(KeyLimit.id).limit(limit)
    if after_id is not None:
        query = query.where(KeyLimit.id > after_id)
    if team_id is not None:
        query = query.where(KeyLimit.team_id == team_id)
    if key_id is not None:
        query = query.where(KeyLimit.key_id == key_id)
    return (await session.execute(query)).scalars().all()


def _alive() -> tuple[ColumnElement[bool], ...]:
    return (ApiKey.revoked_at.is_(None), or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > func.now()),
            or_(ApiKey.revoke_at.is_(None), ApiKey.revoke_at > func.now()))


def _bound(team_id: str, key_id: str | None) -> tuple[ColumnElement[bool], ...]:
    return KeyLimit.team_id == team_id, KeyLimit.key_id.is_not_distinct_from(key_id)


async def _next_seq(session: AsyncSession) -> int:
    """The head's next number. Its one row is held until the commit, so that no reader ever sees a higher number before
    a lower one."""
    statement = update(RevocationHead).values(seq=RevocationHead.seq + 1).returning(RevocationHead.seq)
    return (await session.execute(statement)).scalar_one()
