"""Queries of capacity."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from control_plane.capacity import repository as capacity
from tests.simulation.database import Session
from tests.simulation.standins.register import of


@of(capacity)
async def add_samples(session: Session, reports: Sequence[Mapping[str, Any]]) -> None:
    await session.statement()
    minute = session.tables.now().replace(second=0, microsecond=0)
    for report in reports:
        key = (report["deployment_id"], minute)
        await session.hold(("capacity_sample", key))
        before = session.find("capacity_sample", key, anew=True)
        most = {name: max((value for value in (report[name], getattr(before, name, None)) if value is not None),
                          default=None) for name in ("inflight", "queued", "kv_usage")}
        await session.put("capacity_sample", key, **{**report, **most}, minute_at=minute)


@of(capacity)
async def samples(session: Session, now: datetime, minutes: int) -> Sequence[Any]:
    await session.statement()
    oldest = now.replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    return [row for row in session.scan("capacity_sample", anew=False) if row.minute_at >= oldest]
