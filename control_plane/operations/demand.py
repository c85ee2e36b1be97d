"""What must be served, as safety rule 2 counts it."""

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.capacity import facts as capacity
from control_plane.capacity import reservations
from control_plane.operations.judging import Demand
from control_plane.operations.scope import Scope


async def demand(session: AsyncSession, seen: Scope) -> Demand:
    """The models' peaks of the last 30 minutes, and what is reserved now."""
    models = {one.row.id: one.row.model_id for one in seen.deployments}
    return Demand(await capacity.peaks(session, models, seen.now),
                  await reservations.SOLD.active(session, seen.now))
