"""`/operator/v1/operator-keys`: whose orders edges take while nobody is here."""

from fastapi import APIRouter

from control_plane.context import Context
from control_plane.contracts.operator import Page
from control_plane.contracts.override_keys import OperatorKeyRequest, OperatorKeyView
from control_plane.identity.guards import Admin, Reader
from control_plane.override import service
from control_plane.paging import Paged
from control_plane.routing import publisher

router = APIRouter(prefix="/operator/v1/operator-keys", tags=["override"])


@router.post("", status_code=201)
async def register(asked: OperatorKeyRequest, caller: Admin, context: Context) -> OperatorKeyView:
    """Lets the key's owner override edges; every edge knows it with its next snapshot."""
    async with context.db.begin() as session:
        view = await service.register(session, asked, caller.actor)
        await publisher.publish(session, context.signing_key, f"operator_key:{view.key_id}")
    return view


@router.get("")
async def keys(_: Reader, context: Context, asked: Paged) -> Page[OperatorKeyView]:
    """The keys that were ever registered."""
    async with context.db.begin() as session:
        return await service.keys(session, asked)


@router.delete("/{key_id}", status_code=204)
async def revoke(key_id: str, caller: Admin, context: Context) -> None:
    """Ends a key, and what it ordered, with the next snapshot."""
    async with context.db.begin() as session:
        await service.revoke(session, key_id, caller.actor)
        await publisher.publish(session, context.signing_key, f"operator_key:{key_id}")
