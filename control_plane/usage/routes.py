"""Usage in from edges, and out to operators."""

from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from control_plane.context import Context
from control_plane.contracts.billing import RecountView
from control_plane.contracts.clock import utc
from control_plane.contracts.operator import GenerationView, Page, UsageGroup, UsageSummary
from control_plane.errors import Refusal
from control_plane.identity.guards import EdgeCaller, Operator, Reader
from control_plane.paging import Paged
from control_plane.tenancy import service as tenancy
from control_plane.usage import intake, service
from control_plane.usage.service import Intake
from control_plane.usage.window import Window, window

router = APIRouter(tags=["usage"])

TeamFilter = Annotated[str | None, Query(max_length=100, description="Only this team, by id or slug.")]
Groups = Annotated[list[UsageGroup], Query(description="What to sum by; may be given more than once.")]


def asked_window(context: Context, start: datetime | None = None, end: datetime | None = None) -> Window:
    """The window of the query string; one day back from now if it names none.

    Raises:
        Refusal: it makes no sense.
    """
    try:
        return window(start, end, utc(context.clock.time_s()))
    except ValueError as error:
        raise Refusal(str(error), code="bad_window") from error


AskedWindow = Annotated[Window, Depends(asked_window)]


@router.post("/edge/v1/usage")
async def receive(request: Request, caller: EdgeCaller, context: Context) -> Response:
    """Takes a batch of usage frames, sorted by request id, and says what became of each. Safe to send again."""
    taken_in = Intake(context.db, context.clock, context.settings.usage_retention_days, context.partitions)
    answer = await taken_in.receive(caller.id, intake.decode(await request.body()))
    return Response(msgspec.json.encode(answer), media_type="application/json")


@router.post("/operator/v1/teams/{team_id}/recount")
async def recount(team_id: str, caller: Operator, context: Context) -> RecountView:
    """Sums what a team spent from its records again."""
    async with context.db.begin() as session:
        team = await tenancy.team_named(session, team_id)
        return await service.recount(session, team, caller.actor)


@router.get("/operator/v1/usage")
async def usage(_: Reader, context: Context, asked: AskedWindow, group_by: Groups = [UsageGroup.MODEL],  # noqa: B006
                team: TeamFilter = None) -> UsageSummary:
    """Tokens and money of a time, exactly."""
    async with context.db.begin() as session:
        team_id = (await tenancy.team_named(session, team)).id if team else None
        return await service.summary(session, asked, group_by, team_id)


@router.get("/operator/v1/generations")
async def generations(_: Reader, context: Context, asked: Paged, team: TeamFilter = None) -> Page[GenerationView]:
    """Requests and what each used, the newest first."""
    async with context.db.begin() as session:
        team_id = (await tenancy.team_named(session, team)).id if team else None
        return await service.generations(session, asked, team_id)

