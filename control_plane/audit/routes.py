"""`GET /operator/v1/audit`."""

from typing import Annotated

from fastapi import APIRouter, Query

from control_plane.audit import service
from control_plane.context import Context
from control_plane.contracts.operator import AuditView, Page
from control_plane.identity.guards import Reader
from control_plane.paging import Paged

router = APIRouter(prefix="/operator/v1", tags=["audit"])


@router.get("/audit")
async def events(_: Reader, context: Context, asked: Paged,
                 target: Annotated[str | None, Query(max_length=200)] = None) -> Page[AuditView]:
    """What was changed, by whom and why, the newest first."""
    async with context.db.begin() as session:
        return await service.events(session, asked, target)
