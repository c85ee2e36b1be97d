"""`POST /agent/v1/sync`."""

from fastapi import APIRouter

from control_plane.agents import service
from control_plane.context import Context
from control_plane.contracts.agent_sync import AgentSyncAnswer, AgentSyncRequest
from control_plane.identity.guards import AgentCaller

router = APIRouter(prefix="/agent/v1", tags=["agents"])


@router.post("/sync")
async def sync(caller: AgentCaller, context: Context, request: AgentSyncRequest) -> AgentSyncAnswer:
    """One poll of the agent that drives the caller's fleet."""
    return await service.sync(context, caller, request)
