"""`POST /edge/v1/sync`."""

from fastapi import APIRouter

from control_plane.context import Context
from control_plane.contracts.edge_sync import EdgeSyncAnswer, EdgeSyncRequest
from control_plane.identity.guards import EdgeCaller
from control_plane.routing import service

router = APIRouter(prefix="/edge/v1", tags=["routing"])


@router.post("/sync")
async def sync(caller: EdgeCaller, context: Context, request: EdgeSyncRequest) -> EdgeSyncAnswer:
    """One poll of the calling edge."""
    return await service.sync(context, caller, request)
