"""`/operator/v1/topology` and `/operator/v1/status`."""

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.context import Context
from control_plane.contracts.operator import StatusView
from control_plane.contracts.topology import TopologyDocument
from control_plane.identity.guards import Operator, Reader
from control_plane.routing import publisher
from control_plane.topology import declare, service
from control_plane.topology import status as fleet_status

router = APIRouter(prefix="/operator/v1", tags=["topology"])


@router.put("/topology")
async def apply(document: TopologyDocument, caller: Operator, context: Context) -> TopologyDocument:
    """Applies a document as a whole and answers all that is declared now; the same one twice changes nothing."""
    async def work(session: AsyncSession) -> TopologyDocument:
        if await declare.apply(session, document, caller.actor):
            await publisher.publish(session, context.signing_key, "topology")
        return await service.declared(session)

    return await context.db.run(work)


@router.get("/topology")
async def topology(_: Reader, context: Context) -> TopologyDocument:
    """All that is declared."""
    async with context.db.begin() as session:
        return await service.declared(session)


@router.get("/status")
async def status(_: Reader, context: Context) -> StatusView:
    """The fleet at a glance."""
    async with context.db.begin() as session:
        return await fleet_status.status(session, context.settings)
