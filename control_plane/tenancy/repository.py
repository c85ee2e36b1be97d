"""SQL of the tenancy slice. Whatever belongs to a team is asked for with that team."""

from collections.abc import Collection, Sequence

from sqlalchemy import func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.tenancy.models import ApiKey, KeyRevocation, RevocationHead, Team


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
    """The key with this digest, unless it was revoked or has expired."""
    return (await session.execute(select(ApiKey).where(
        ApiKey.digest == digest, ApiKey.revoked_at.is_(None),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > func.now())))).scalar_one_or_none()


async def teams_of_keys(session: AsyncSession, key_ids: Collection[str]) -> dict[str, str]:
    """Team by key, revoked and expired keys included; a key that was never made is missing."""
    rows = await session.execute(select(ApiKey.id, ApiKey.team_id).where(ApiKey.id.in_(key_ids)))
    return {row.id: row.team_id for row in rows}


async def revoke_key(session: AsyncSession, key_id: str) -> ApiKey | None:
    """The key, revoked just now; none if it was not alive."""
    statement = update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None)).values(
        revoked_at=func.now()).returning(ApiKey)
    return (await session.execute(statement)).scalar_one_or_none()


async def add_revocation(session: AsyncSession, key: ApiKey) -> None:
    """Adds `key` to the stream. It holds the head's one row until the commit, so that no reader ever sees a higher
    number before a lower one."""
    statement = update(RevocationHead).values(seq=RevocationHead.seq + 1).returning(RevocationHead.seq)
    seq = (await session.execute(statement)).scalar_one()
    session.add(KeyRevocation(seq=seq, key_id=key.id, digest=key.digest))


async def revocations(session: AsyncSession, after: int, limit: int) -> Sequence[KeyRevocation]:
    return (await session.execute(select(KeyRevocation).where(KeyRevocation.seq > after).order_by(
        KeyRevocation.seq).limit(limit))).scalars().all()
