"""Enrols machines and gives out tokens. A secret leaves here once and is stored as a digest."""

from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.audit import service as audit
from control_plane.contracts import ids
from control_plane.contracts.enrolment import EnrolRequest, IdentityKind
from control_plane.contracts.operator import (
    EnrolmentTokenCreated,
    EnrolmentTokenRequest,
    OperatorTokenCreated,
    OperatorTokenRequest,
)
from control_plane.contracts.signing import VerifyKey
from control_plane.db import database_time
from control_plane.errors import Conflict, NotFound, Refusal, Unauthenticated
from control_plane.identity import repository
from control_plane.identity.models import EnrolmentToken, Identity, OperatorToken

REFUSED = "the enrolment token is unknown, spent or expired; ask an operator for a new one"


async def create_enrolment_token(session: AsyncSession, asked: EnrolmentTokenRequest, environment: str,
                                 actor: str) -> EnrolmentTokenCreated:
    """A token with which one agent or edge enrols once."""
    secret = ids.new_secret(f"enrol_meridian_{environment}")
    expires_at = await database_time(session) + timedelta(seconds=asked.ttl_s)
    session.add(EnrolmentToken(
        digest=ids.secret_digest(secret), kind=IdentityKind(asked.kind), subject=asked.subject, expires_at=expires_at))
    audit.record(session, actor=actor, action="enrolment_token.create", target=f"{asked.kind}:{asked.subject}",
                 after={"expires_at": expires_at.isoformat()})
    return EnrolmentTokenCreated(token=secret, expires_at=expires_at)


async def create_operator_token(session: AsyncSession, asked: OperatorTokenRequest, environment: str,
                                actor: str) -> OperatorTokenCreated:
    """A token for a person or a program."""
    secret, token_id = ids.new_secret(f"oper_meridian_{environment}"), ids.new_id("token")
    expires_at = await database_time(session) + timedelta(seconds=asked.ttl_s)
    scopes = sorted({scope.value for scope in asked.scopes})
    session.add(OperatorToken(
        id=token_id, name=asked.name, digest=ids.secret_digest(secret), scopes=scopes, expires_at=expires_at))
    audit.record(session, actor=actor, action="operator_token.create", target=f"operator_token:{token_id}",
                 after={"name": asked.name, "scopes": scopes, "expires_at": expires_at.isoformat()})
    return OperatorTokenCreated(id=token_id, token=secret, expires_at=expires_at)


async def revoke_operator_token(session: AsyncSession, token_id: str, actor: str) -> None:
    """Ends an operator token at once.

    Raises:
        NotFound: there is no such token alive.
    """
    if not await repository.revoke_operator_token(session, token_id):
        raise NotFound(f"there is no living operator token {token_id!r}")
    audit.record(session, actor=actor, action="operator_token.revoke", target=f"operator_token:{token_id}")


async def revoke_identity(session: AsyncSession, identity_id: str, actor: str) -> None:
    """Ends a machine's identity; replicas that know it refuse it within `identity_cache_s`.

    Raises:
        NotFound: there is no such identity alive.
    """
    if not await repository.revoke_identity(session, identity_id):
        raise NotFound(f"there is no living identity {identity_id!r}")
    audit.record(session, actor=actor, action="identity.revoke", target=f"identity:{identity_id}")


async def enrol(session: AsyncSession, asked: EnrolRequest) -> Identity:
    """The identity of `asked.public_key`. A lost answer does no harm: the same token and key find it again.

    Raises:
        Refusal: the public key is none.
        Unauthenticated: the token is unknown, spent by another key, expired, or for another kind of machine.
        Conflict: the key belongs to an identity of another kind or subject.
    """
    public_key = _public_key(asked.public_key)
    token = await repository.locked_enrolment_token(session, ids.secret_digest(asked.token))
    if token is None or token.kind is not asked.kind:
        raise Unauthenticated(REFUSED)
    if token.spent_by is not None:
        return await _enrolled_before(session, token.spent_by, public_key)
    now = await database_time(session)
    if token.expires_at <= now:
        raise Unauthenticated(REFUSED)
    identity = await _find_or_make(session, token, public_key)
    token.spent_by, token.spent_at = identity.id, now
    return identity


def _public_key(text: str) -> str:
    try:
        return VerifyKey.from_text(text).text
    except ValueError as error:
        raise Refusal("the public key is not url-safe base64 of 32 bytes", code="bad_public_key") from error


async def _enrolled_before(session: AsyncSession, identity_id: str, public_key: str) -> Identity:
    identity = await repository.identity(session, identity_id)
    if identity is None or identity.revoked_at is not None or identity.public_key != public_key:
        raise Unauthenticated(REFUSED)
    return identity


async def _find_or_make(session: AsyncSession, token: EnrolmentToken, public_key: str) -> Identity:
    """A machine that kept its key keeps its identity, whatever token it shows."""
    made = Identity(id=ids.new_id(token.kind.value), kind=token.kind, subject=token.subject, public_key=public_key)
    if await repository.add_identity(session, made):
        audit.record(session, actor=f"machine:{made.id}", action="identity.enrol", target=f"identity:{made.id}",
                     after=_facts(token.kind, token.subject, token.created_at))
        return made
    stored = await repository.identity_by_key(session, public_key)
    if stored is None or stored.revoked_at is not None or (stored.kind, stored.subject) != (token.kind, token.subject):
        raise Conflict("this key is enrolled as something else, or was revoked; make a new key", code="key_in_use")
    return stored


def _facts(kind: IdentityKind, subject: str, token_made_at: datetime) -> dict[str, str]:
    return {"kind": kind.value, "subject": subject, "token_made_at": token_made_at.isoformat()}
