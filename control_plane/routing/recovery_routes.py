"""`/operator/v1/recovery`: whether machines are ahead of this database, and the way back."""

from fastapi import APIRouter

from control_plane.context import Context
from control_plane.contracts.recovery import LineageView, RecoveryRequest, RecoveryView
from control_plane.identity.guards import Admin, Reader
from control_plane.routing import recovery

router = APIRouter(prefix="/operator/v1/recovery", tags=["recovery"])


@router.get("")
async def look(_: Reader, context: Context) -> LineageView:
    """Where history stands, and who has seen more than the database holds."""
    async with context.db.begin() as session:
        return await recovery.view(session)


@router.post("")
async def recover(asked: RecoveryRequest, caller: Admin, context: Context) -> RecoveryView:
    """Begins a new lineage, which every edge and agent follows."""
    async with context.db.begin() as session:
        return await recovery.recover(session, context.signing_key, asked, caller.actor)
