"""Audit work that may be lost or repeated without harm."""

import structlog

from control_plane import metrics
from control_plane.audit import service
from control_plane.audit.chain import Tip
from control_plane.db import Database

MAX_EVENTS_WALKED = 100_000
LOG = "audit"

log = structlog.get_logger()


async def verify_chain(db: Database) -> None:
    """Walks the whole chain, and tells by log and metric whether it is as it was written."""
    view = await service.verify(db, Tip(), MAX_EVENTS_WALKED)
    while not view.is_complete:
        view = await service.verify(db, Tip(view.seq, bytes.fromhex(view.hash)), MAX_EVENTS_WALKED)
    metrics.AUDIT_CHAIN_OK.labels(LOG).set(view.fault is None)
    if view.fault is None:
        log.info("audit_chain_verified", events=view.seq, head=view.hash)
    else:
        log.error("audit_chain_broken", seq=view.fault.seq, event_id=view.fault.event_id, problem=view.fault.problem)
