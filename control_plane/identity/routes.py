"""Enrolment of machines, and the tokens that operators give out."""

from fastapi import APIRouter

from control_plane.context import Context
from control_plane.contracts.enrolment import ControlPlaneKey, EnrolAnswer, EnrolRequest, IdentityKind
from control_plane.contracts.operator import (
    EnrolmentTokenCreated,
    EnrolmentTokenRequest,
    OperatorTokenCreated,
    OperatorTokenRequest,
)
from control_plane.identity import service
from control_plane.identity.guards import Admin
from control_plane.topology.service import require_place

router = APIRouter(tags=["identity"])


@router.post("/enrol/v1")
async def enrol(asked: EnrolRequest, context: Context) -> EnrolAnswer:
    """Turns a one-time token and a public key into an identity; the same token and key answer the same again."""
    async with context.db.begin() as session:
        identity = await service.enrol(session, asked)
    public = context.signing_key.public
    return EnrolAnswer(identity=identity.id, subject=identity.subject,
                       control_plane_keys=[ControlPlaneKey(key_id=public.key_id, public_key=public.text)])


@router.post("/operator/v1/enrolment-tokens", status_code=201)
async def create_enrolment_token(asked: EnrolmentTokenRequest, caller: Admin,
                                 context: Context) -> EnrolmentTokenCreated:
    """Makes a one-time token for an agent or an edge of a declared place; it is shown this once."""
    async with context.db.begin() as session:
        await require_place(session, IdentityKind(asked.kind), asked.subject)
        return await service.create_enrolment_token(session, asked, context.settings.environment, caller.actor)


@router.post("/operator/v1/tokens", status_code=201)
async def create_operator_token(asked: OperatorTokenRequest, caller: Admin, context: Context) -> OperatorTokenCreated:
    """Makes an operator token; it is shown this once."""
    async with context.db.begin() as session:
        return await service.create_operator_token(session, asked, context.settings.environment, caller.actor)


@router.delete("/operator/v1/tokens/{token_id}", status_code=204)
async def revoke_operator_token(token_id: str, caller: Admin, context: Context) -> None:
    """Ends an operator token at once."""
    async with context.db.begin() as session:
        await service.revoke_operator_token(session, token_id, caller.actor)


@router.delete("/operator/v1/identities/{identity_id}", status_code=204)
async def revoke_identity(identity_id: str, caller: Admin, context: Context) -> None:
    """Ends a machine's identity; every replica refuses it within 5 s."""
    async with context.db.begin() as session:
        await service.revoke_identity(session, identity_id, caller.actor)
