"""Teams, keys and what binds them for operators, and the key look-up of edges."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import ValidationError

from control_plane.context import Context
from control_plane.contracts.keys import KeyLookup, Principal
from control_plane.contracts.operator import KeyCreated, KeyRequest, KeyView, Page, TeamRequest, TeamView
from control_plane.contracts.tenancy import (
    LimitRequest,
    LimitTarget,
    LimitView,
    ModelsRequest,
    RegionsRequest,
    RotationRequest,
)
from control_plane.errors import Refusal
from control_plane.identity.guards import EdgeCaller, Operator, Reader
from control_plane.paging import Paged
from control_plane.tenancy import account_routes, policy, principals, service

Filter = Annotated[str | None, Query(max_length=200)]

router = APIRouter(tags=["tenancy"])
router.include_router(account_routes.router)


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


@router.post("/operator/v1/keys/{key_id}/rotate", status_code=201)
async def rotate_key(key_id: str, asked: RotationRequest, caller: Operator, context: Context) -> KeyCreated:
    """Makes a key's successor; its secret is shown this once, and the old one works until the grace is over."""
    async with context.db.begin() as session:
        return await service.rotate_key(session, key_id, asked, context.settings.environment, caller.actor)


@router.put("/operator/v1/keys/{key_id}/models")
async def set_models(key_id: str, asked: ModelsRequest, caller: Operator, context: Context) -> KeyView:
    """Says which models a key may use."""
    async with context.db.begin() as session:
        return await policy.set_models(session, key_id, asked.models, caller.actor)


@router.put("/operator/v1/keys/{key_id}/regions")
async def set_key_regions(key_id: str, asked: RegionsRequest, caller: Operator, context: Context) -> KeyView:
    """Says which regions may serve a key."""
    async with context.db.begin() as session:
        return await policy.set_key_regions(session, key_id, asked.regions, caller.actor)


@router.put("/operator/v1/teams/{team_id}/regions")
async def set_team_regions(team_id: str, asked: RegionsRequest, caller: Operator, context: Context) -> TeamView:
    """Says which regions may serve a team."""
    async with context.db.begin() as session:
        return await policy.set_team_regions(session, team_id, asked.regions, caller.actor)


@router.put("/operator/v1/limits")
async def put_limit(asked: LimitRequest, caller: Operator, context: Context) -> LimitView:
    """Sets a rate limit; edges obey it within 5 s."""
    async with context.db.begin() as session:
        return await policy.put_limit(session, asked, caller.actor)


@router.get("/operator/v1/limits")
async def limits(_: Reader, context: Context, asked: Paged, team: Filter = None,
                 key: Filter = None) -> Page[LimitView]:
    """The rate limits: all, a team's with those of its keys, or one key's."""
    async with context.db.begin() as session:
        return await policy.limits(session, asked, team, key)


def limit_target(team: Filter = None, key: Filter = None, model: Filter = None) -> LimitTarget:
    """What the limit to remove binds, from the query string.

    Raises:
        Refusal: not exactly one of team and key.
    """
    try:
        return LimitTarget(team=team, key=key, model=model)
    except ValidationError as error:
        raise Refusal("name a team or a key, one of the two, and at most a model", code="bad_target") from error


@router.delete("/operator/v1/limits", status_code=204)
async def drop_limit(caller: Operator, context: Context,
                     target: Annotated[LimitTarget, Depends(limit_target)]) -> None:
    """Removes a rate limit."""
    async with context.db.begin() as session:
        await policy.drop_limit(session, target, caller.actor)


@router.post("/edge/v1/keys/lookup")
async def lookup(asked: KeyLookup, _: EdgeCaller, context: Context) -> Principal:
    """Whom the key with this digest speaks for; 404 if nobody, or nobody any more."""
    async with context.db.begin() as session:
        return await principals.principal_of(session, asked.digest, context.signing_key)
