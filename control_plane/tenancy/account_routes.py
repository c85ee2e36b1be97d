"""`/edge/v1/…`: what an edge asks on behalf of a key's holder. Another team's things answer 404, like none at all."""

from uuid import UUID

from fastapi import APIRouter

from control_plane.context import Context
from control_plane.contracts.account import Generation, KeyAccount, TeamCredits
from control_plane.identity.guards import EdgeCaller
from control_plane.tenancy import account

router = APIRouter(prefix="/edge/v1", tags=["tenancy"])


@router.get("/keys/{key_id}/account")
async def key_account(key_id: str, _: EdgeCaller, context: Context) -> KeyAccount:
    """A key and its spend."""
    async with context.db.begin() as session:
        return await account.key_account(session, key_id)


@router.get("/teams/{team_id}/credits")
async def team_credits(team_id: str, _: EdgeCaller, context: Context) -> TeamCredits:
    """A team's credits and its spend."""
    async with context.db.begin() as session:
        return await account.team_credits(session, team_id)


@router.get("/teams/{team_id}/generations/{request_id}")
async def generation(team_id: str, request_id: UUID, _: EdgeCaller, context: Context) -> Generation:
    """One request of the team; 404 until its record is in."""
    async with context.db.begin() as session:
        return await account.generation(session, team_id, request_id)
