"""`/operator/v1/capacity`."""

from fastapi import APIRouter

from control_plane.capacity import service
from control_plane.context import Context
from control_plane.contracts.capacity import (
    BoundRequest,
    BoundView,
    CapacityView,
    ModeRequest,
    PlannerView,
    PlanView,
)
from control_plane.contracts.operator import Page
from control_plane.identity.guards import Operator, Reader
from control_plane.paging import Paged

router = APIRouter(prefix="/operator/v1/capacity", tags=["capacity"])


@router.get("")
async def view(_: Reader, context: Context) -> CapacityView:
    """What each model can serve, is asked for and has reserved, and how full the fleets are."""
    async with context.db.begin() as session:
        return await service.view(session, context.settings)


@router.get("/plan")
async def plan(_: Reader, context: Context) -> PlanView:
    """What the planner would do now, and why; asking changes nothing."""
    async with context.db.begin() as session:
        return await service.plan_now(session, context.settings)


@router.get("/plans")
async def plans(_: Reader, context: Context, asked: Paged, only_moves: bool = False) -> Page[PlanView]:
    """The plans that were made, the newest first."""
    async with context.db.begin() as session:
        return await service.plans(session, asked, only_moves)


@router.post("/mode")
async def mode(asked: ModeRequest, caller: Operator, context: Context) -> PlannerView:
    """Changes what the planner may do."""
    async with context.db.begin() as session:
        return await service.set_mode(session, context.settings, asked, caller.actor)


@router.put("/bounds")
async def set_bound(asked: BoundRequest, caller: Operator, context: Context) -> BoundView:
    """Holds a pool between two counts of replicas."""
    async with context.db.begin() as session:
        return await service.set_bound(session, asked, caller.actor)
