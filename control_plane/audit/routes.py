"""`GET /operator/v1/audit`, and `/verify` below it."""

from typing import Annotated

from fastapi import APIRouter, Query

from control_plane.audit import service
from control_plane.audit.chain import Tip
from control_plane.context import Context
from control_plane.contracts.audit import AuditView, ChainView
from control_plane.contracts.operator import Page
from control_plane.identity.guards import Reader
from control_plane.paging import Paged

MAX_EVENTS_WALKED = 50_000

router = APIRouter(prefix="/operator/v1", tags=["audit"])

Hash = Annotated[str | None, Query(pattern="^[0-9a-f]{64}$")]


@router.get("/audit")
async def events(_: Reader, context: Context, asked: Paged,
                 target: Annotated[str | None, Query(max_length=200)] = None) -> Page[AuditView]:
    """What was changed, by whom and why, the newest first."""
    async with context.db.begin() as session:
        return await service.events(session, asked, target)


@router.get("/audit/verify")
async def verify(_: Reader, context: Context, after_seq: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
                 after_hash: Hash = None, expect_head: Hash = None) -> ChainView:
    """Whether the log is as it was written: at most 50,000 events from the start, or from where the last answer came
    to. `expect_head` is the hash of an event that has to be in it."""
    start = Tip(after_seq, bytes.fromhex(after_hash)) if after_hash is not None else Tip()
    return await service.verify(context.db, start, MAX_EVENTS_WALKED,
                                bytes.fromhex(expect_head) if expect_head else None)
