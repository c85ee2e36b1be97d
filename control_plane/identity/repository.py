"""SQL of the identity slice."""

from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.identity.models import EnrolmentToken, Identity, OperatorToken


async def identity(session: AsyncSession, identity_id: str) -> Identity | None:
    return await session.get(Identity, identity_id)


async def identity_by_key(session: AsyncSession, public_key: str) -> Identity | None:
    return (await session.execute(select(Identity).where(Identity.public_key == public_key))).scalar_one_or_none()


async def add_identity(session: AsyncSession, made: Identity) -> bool:
    """Stores `made`; false if its public key is enrolled already."""
    statement = insert(Identity).values(
        id=made.id, kind=made.kind, subject=made.subject, public_key=made.public_key,
    ).on_conflict_do_nothing(index_elements=["public_key"]).returning(Identity.id)
    return (await session.execute(statement)).scalar_one_or_none() is not None


async def revoke_identity(session: AsyncSession, identity_id: str) -> bool:
    """Ends an identity; false if there was none alive."""
    statement = update(Identity).where(Identity.id == identity_id, Identity.revoked_at.is_(None)).values(
        revoked_at=func.now()).returning(Identity.id)
    return (await session.execute(statement)).scalar_one_or_none() is not None


async def locked_enrolment_token(session: AsyncSession, digest: str) -> EnrolmentToken | None:
    """The token, held until the transaction ends, so that two enrolments cannot both spend it."""
    return (await session.execute(
        select(EnrolmentToken).where(EnrolmentToken.digest == digest).with_for_update())).scalar_one_or_none()


async def prune_enrolment_tokens(session: AsyncSession, before: datetime) -> int:
    """Removes tokens that ended before `before`; the identities that they made stay."""
    statement = delete(EnrolmentToken).where(EnrolmentToken.expires_at < before).returning(EnrolmentToken.digest)
    return len((await session.execute(statement)).all())


async def operator_token(session: AsyncSession, digest: str) -> OperatorToken | None:
    """The living token with this digest."""
    return (await session.execute(select(OperatorToken).where(
        OperatorToken.digest == digest, OperatorToken.revoked_at.is_(None), OperatorToken.expires_at > func.now(),
    ))).scalar_one_or_none()


async def revoke_operator_tokens_named(session: AsyncSession, name: str) -> int:
    """Ends every living token of that name."""
    statement = update(OperatorToken).where(OperatorToken.name == name, OperatorToken.revoked_at.is_(None)).values(
        revoked_at=func.now()).returning(OperatorToken.id)
    return len((await session.execute(statement)).all())


async def revoke_operator_token(session: AsyncSession, token_id: str) -> bool:
    """Ends one token; false if it was not alive."""
    statement = update(OperatorToken).where(OperatorToken.id == token_id, OperatorToken.revoked_at.is_(None)).values(
        revoked_at=func.now()).returning(OperatorToken.id)
    return (await session.execute(statement)).scalar_one_or_none() is not None
