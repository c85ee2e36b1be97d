"""Teams and keys for operators, and the key look-up of edges."""

from fastapi import APIRouter

from control_plane.context import Context
from control_plane.contracts.keys import KeyLookup, Principal
from control_plane.contracts.operator import KeyCreated, KeyRequest, KeyView, Page, TeamRequest, TeamView
from control_plane.identity.guards import EdgeCaller, Operator, Reader
from control_plane.paging import Paged
from control_plane.tenancy import service

router = APIRouter(tags=["tenancy"])


@router.post("/operator/v1/teams", status_code=201)
async def create_team(asked: TeamRequest, caller: Operator, context: Context) -> TeamView:
    """Makes a team."""
    async with context.db.begin() as session:
        return await service.create_team(session, asked, caller.actor)


@router.get("/operator/v1/teams")
async def teams(_: Reader, context: Context, asked: Paged) -> Page[TeamView]:
    """All teams, the oldest first."""
    async with context.db.begin() as session:
        return await service.teams(session, asked)


@router.post("/operator/v1/teams/{team_id}/keys", status_code=201)
async def create_key(team_id: str, asked: KeyRequest, caller: Operator, context: Context) -> KeyCreated:
    """Makes a key; its secret is shown this once."""
    async with context.db.begin() as session:
        team = await service.team_named(session, team_id)
        return await service.create_key(session, team, asked, context.settings.environment, caller.actor)


@router.get("/operator/v1/teams/{team_id}/keys")
async def keys(team_id: str, _: Reader, context: Context, asked: Paged) -> Page[KeyView]:
    """A team's keys, without their secrets."""
    async with context.db.begin() as session:
        team = await service.team_named(session, team_id)
        return await service.keys(session, team.id, asked)


@router.delete("/operator/v1/keys/{key_id}", status_code=204)
async def revoke_key(key_id: str, caller: Operator, context: Context) -> None:
    """Takes a key back; edges refuse it within 5 s."""
    async with context.db.begin() as session:
        await service.revoke_key(session, key_id, caller.actor)


@router.post("/edge/v1/keys/lookup")
async def lookup(asked: KeyLookup, _: EdgeCaller, context: Context) -> Principal:
    """Whom the key with this digest speaks for; 404 if nobody, or nobody any more."""
    async with context.db.begin() as session:
        return await service.principal_of(session, asked.digest)
