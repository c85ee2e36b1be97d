"""`/api/v1/teams/{team_id}/…`: a team's own usage, generations and keys."""

from fastapi import APIRouter

from control_plane.context import Context
from control_plane.contracts.operator import GenerationView, KeyView, Page, UsageGroup, UsageSummary
from control_plane.paging import Paged
from control_plane.tenancy import service as tenancy
from control_plane.tenancy.guards import TeamReader
from control_plane.usage import service
from control_plane.usage.routes import AskedWindow, Groups

router = APIRouter(prefix="/api/v1/teams/{team_id}", tags=["dashboard"])


@router.get("/usage")
async def usage(team: TeamReader, context: Context, asked: AskedWindow,
                group_by: Groups = [UsageGroup.MODEL]) -> UsageSummary:  # noqa: B006
    """Tokens and money of a time, exactly."""
    async with context.db.begin() as session:
        return await service.summary(session, asked, group_by, team.id)


@router.get("/generations")
async def generations(team: TeamReader, context: Context, asked: Paged) -> Page[GenerationView]:
    """Requests and what each used, the newest first."""
    async with context.db.begin() as session:
        return await service.generations(session, asked, team.id)


@router.get("/keys")
async def keys(team: TeamReader, context: Context, asked: Paged) -> Page[KeyView]:
    """The team's keys, without their secrets."""
    async with context.db.begin() as session:
        return await tenancy.keys(session, team.id, asked)
