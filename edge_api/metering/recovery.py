"""What a restart finds in the outbox: damage is cut off or set aside, and requests that a dead edge left open are
closed with a provisional record, which the engine's witness settles later.
"""

import os
from pathlib import Path
from uuid import UUID

import structlog

from control_plane.contracts.clock import Clock
from control_plane.contracts.signing import write_private
from control_plane.contracts.usage import MeterSource, Outcome, UsageOpen, UsageRecord
from edge_api.hot.services import OutboxFull
from edge_api.metering.frames import Unreadable, decode, scan
from edge_api.metering.outbox import Outbox, delete, segment_numbers, segment_path
from edge_api.metering.shipped import ShippedSegments
from edge_api.metrics import Metrics

log = structlog.get_logger()


def open_outbox(directory: Path, segment_bytes: int, max_bytes: int, clock: Clock, metrics: Metrics,
                keeps_newest: bool = False, kept: ShippedSegments | None = None) -> Outbox:
    """The outbox, repaired, with a provisional record for each request that died with an earlier process.

    Raises:
        OSError: the disk cannot be used.
    """
    lost = repair(directory, metrics)
    outbox = Outbox(directory, segment_bytes, max_bytes, metrics, keeps_newest, delete if kept is None else kept.keep)
    metrics.outbox_bytes.set_function(lambda: outbox.size_bytes)
    try:
        close_lost(outbox, lost, clock)
    except (OSError, OutboxFull) as error:
        log.error("lost_requests_not_closed", error=str(error))
    return outbox


def repair(directory: Path, metrics: Metrics) -> list[UsageOpen]:
    """Makes the segments of earlier boots whole and durable. To be called before the outbox is opened.

    Returns:
        The requests that were opened and never recorded.
    """
    unresolved: dict[UUID, UsageOpen] = {}
    numbers = segment_numbers(directory)
    for number in numbers:
        path = segment_path(directory, number)
        data, kept = path.read_bytes(), 0
        for start, end, payload in scan(data, at_end=True):
            if payload is not None:
                _follow(payload, unresolved)
            elif end == len(data) and number == numbers[-1]:
                log.warning("outbox_tail_torn", segment=number, offset=start, dropped_bytes=end - start)
                break
            else:
                set_aside(directory, f"{number}-{start}", data[start:end], metrics)
            kept = end
        _settle(path, kept)
    return list(unresolved.values())


def close_lost(outbox: Outbox, lost: list[UsageOpen], clock: Clock) -> None:
    """Writes a provisional record for each request that died with an earlier boot.

    Raises:
        OutboxFull, OSError: the rest stays for the next start.
    """
    for frame in lost:
        outbox.record(edge_lost(frame, clock.time_s()))
    if lost:
        log.warning("outbox_requests_lost", count=len(lost))


def edge_lost(frame: UsageOpen, now_s: float) -> UsageRecord:
    """The record of a request whose end this edge did not live to see: nothing counted, nothing charged."""
    return UsageRecord(
        request_id=frame.request_id, team_id=frame.team_id, key_id=frame.key_id, model_id=frame.model_id,
        datacenter_id="", price_version=frame.price_version, outcome=Outcome.EDGE_LOST,
        meter=MeterSource.PROVISIONAL, streamed=False, http_status=0, prompt_tokens=0, cached_tokens=0,
        completion_tokens=0, reasoning_tokens=0, cost_usd="0", attempts=[], opened_at_s=frame.opened_at_s,
        duration_ms=max(0.0, 1000 * (now_s - frame.opened_at_s)))


def set_aside(directory: Path, name: str, content: bytes, metrics: Metrics) -> None:
    """Keeps what cannot be read or shipped for people to look at, loudly, once."""
    path = directory / "quarantine" / name
    if path.exists():
        return
    path.parent.mkdir(exist_ok=True, mode=0o700)
    write_private(path, content)
    metrics.outbox_quarantined.inc()
    log.error("outbox_quarantined", file=path.name, size_bytes=len(content))


def _follow(payload: bytes, unresolved: dict[UUID, UsageOpen]) -> None:
    try:
        usage = decode(payload)
    except Unreadable:
        return  # the shipper sets it aside when it gets there
    if isinstance(usage, UsageOpen):
        unresolved[usage.request_id] = usage
    else:
        unresolved.pop(usage.request_id, None)


def _settle(path: Path, kept_bytes: int) -> None:
    """Cuts a torn tail off and makes the rest durable: an earlier boot may have died before its fsync."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.ftruncate(descriptor, kept_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
