"""Ships the outbox to the control plane: at least once, in sorted batches, only what is durable on this disk.

Records go in the order of the log; the cursor behind them is kept on disk, and losing it only means duplicates, which
the control plane knows. A request that is open for `OPEN_AFTER_S` is announced with its `open` frame; shorter ones
are not worth a row of their own, their record is there at once.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import msgspec
import structlog

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock
from control_plane.contracts.signing import write_private
from control_plane.contracts.transport import ControlPlaneAway
from control_plane.contracts.usage import UsageAnswer, UsageBatch, UsageRecord, Verdict
from edge_api.identity import ControlPlaneLink
from edge_api.metering.frames import Position, Unreadable, Usage, decode, scan
from edge_api.metering.outbox import Outbox, Unresolved, segment_numbers, segment_path
from edge_api.metering.recovery import set_aside
from edge_api.metering.shipped import ShippedSegments
from edge_api.metrics import Metrics

PATH = "/edge/v1/usage"
MAX_BATCH = 500
OPEN_AFTER_S = 2.0
READ_BYTES = 256 * 1024
TICK_S = 0.25
DEADLINE_S = 15.0
FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 5.0

log = structlog.get_logger()


class Refused(Exception):
    """The control plane answered, and did not store the batch. `shape` is true if no repeat will change that."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.shape = status in (400, 413, 422)


class Shipper:
    """Owns the cursor: everything before it is stored, or set aside. `on_stored` hears of each record once."""

    def __init__(self, outbox: Outbox, link: ControlPlaneLink, boot_id: str, clock: Clock, metrics: Metrics,
                 on_stored: Callable[[UsageRecord], None] = lambda record: None,
                 kept: ShippedSegments | None = None) -> None:
        self._outbox, self._link, self._boot_id, self._clock, self._metrics = outbox, link, boot_id, clock, metrics
        self._on_stored, self._kept = on_stored, kept
        self._again: Iterator[list[UsageRecord]] | None = None
        self._again_batch: list[UsageRecord] = []
        self._told_to = Position(0, 0)
        self._cursor_path = outbox.directory / "cursor.json"
        self._cursor = _load_cursor(self._cursor_path, outbox.written)
        self._limit = MAX_BATCH
        self._lock = asyncio.Lock()

    @property
    def shipped(self) -> Position:
        """How far the outbox is stored by the control plane, or set aside."""
        return self._cursor

    async def run(self) -> None:
        """Ships for ever; while the control plane is away it tries less often."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                while await self.ship_once():
                    pass
            except (ControlPlaneAway, Refused) as error:
                if backoff_s == FIRST_BACKOFF_S:  # the first failure only: an outage may last for days
                    log.warning("usage_not_shipped", error=str(error))
                await asyncio.sleep(ids.jitter(backoff_s))
                backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)
            else:
                self._metrics.all_shipped_at_s.set(self._clock.time_s())
                if backoff_s > FIRST_BACKOFF_S:
                    log.info("usage_shipped_again")
                backoff_s = FIRST_BACKOFF_S
                await asyncio.sleep(TICK_S)

    async def ship_rest(self, within_s: float) -> bool:
        """The last try of a process that ends: everything written, as far as `within_s` allows. True if all is stored.

        Raises:
            OSError: the disk failed.
        """
        await self._outbox.sync()
        try:
            async with asyncio.timeout(within_s):
                while await self.ship_once():
                    pass
        except (TimeoutError, ControlPlaneAway, Refused) as error:
            log.warning("usage_left_for_next_start", error=str(error) or "timeout")
            return False
        return True

    async def ship_once(self) -> bool:
        """Ships one batch. False if there was nothing to ship.

        Raises:
            ControlPlaneAway, Refused: nothing was stored; the batch stays.
        """
        async with self._lock:
            if self._kept is not None and self._kept.is_due and self._again is None:
                self._begin_again(self._kept)
            return await self._ship_opens() or await self._ship_records() or await self._ship_kept()

    def ship_again(self) -> None:
        """What was acknowledged may be lost with the database that did: all of it that is still here goes once more."""
        if self._kept is not None:
            self._kept.ship_again()

    def _begin_again(self, kept: ShippedSegments) -> None:
        log.warning("usage_shipped_once_more", from_segment=self._cursor.segment)
        self._again, self._told_to, self._cursor = kept.records(), self._cursor, Position(0, 0)
        for entry in self._outbox.unresolved.values():
            entry.shipped = False

    async def _ship_kept(self) -> bool:
        """Ships a batch of what is kept; nobody is told of those records again."""
        if self._again is None or self._kept is None:
            return False
        if not self._again_batch:
            segment = await asyncio.to_thread(next, self._again, None)
            if segment is None:
                self._again = None
                self._kept.shipped_again()
                return False
            self._again_batch = segment
        batch = self._again_batch[:self._limit]
        if batch and await self._ship(batch, is_again=True):
            del self._again_batch[:len(batch)]
        return True

    async def _ship_opens(self) -> bool:
        due = self._due_opens()
        if due and await self._ship([entry.frame for entry in due]):
            for entry in due:
                entry.shipped = True
        return bool(due)

    async def _ship_records(self) -> bool:
        start = self._cursor
        records, after = await asyncio.to_thread(self._read, start, self._outbox.durable)
        if records and not await self._ship(records, is_again=start < self._told_to):
            return True
        if after != start:
            self._cursor = after
            await asyncio.to_thread(_save_cursor, self._cursor_path, after)
        self._outbox.release(after)
        return bool(records)

    async def _ship(self, usages: Sequence[Usage], is_again: bool = False) -> bool:
        """True if they are done with: stored, or the only one of them set aside. False: try fewer at once."""
        frames = sorted(usages, key=lambda usage: usage.request_id)
        try:
            verdicts = await self._post(frames)
        except Refused as refusal:
            self._metrics.ship_failures.inc()
            if not refusal.shape:
                raise
            if self._limit > 1:
                self._limit = max(1, min(self._limit, len(frames)) // 2)
                return False
            for frame in frames:
                set_aside(self._outbox.directory, f"refused-{frame.request_id}-{type(frame).__name__}",
                          msgspec.json.encode(frame), self._metrics)
            return True
        except ControlPlaneAway:
            self._metrics.ship_failures.inc()
            raise
        self._limit = min(2 * self._limit, MAX_BATCH)
        self._count(frames, verdicts, is_again)
        return True

    async def _post(self, frames: list[Usage]) -> list[Verdict]:
        body = msgspec.json.encode(UsageBatch(boot_id=self._boot_id, frames=frames))
        answer = await self._link.post(PATH, body, DEADLINE_S)
        if answer.status_code != httpx.codes.OK:
            raise Refused(answer.status_code)
        try:
            verdicts = msgspec.json.decode(answer.content, type=UsageAnswer).verdicts
        except msgspec.MsgspecError as error:
            raise ControlPlaneAway(f"an answer that is no UsageAnswer: {error}") from error
        if len(verdicts) != len(frames):
            raise ControlPlaneAway(f"{len(verdicts)} verdicts for {len(frames)} frames")
        return verdicts

    def _count(self, frames: list[Usage], verdicts: list[Verdict], is_again: bool) -> None:
        for frame, verdict in zip(frames, verdicts, strict=True):
            self._metrics.shipped_frames.labels(verdict).inc()
            if verdict is Verdict.STORED and isinstance(frame, UsageRecord) and not is_again:
                self._on_stored(frame)
            if verdict is Verdict.CONFLICT:
                log.error("usage_conflict", request_id=str(frame.request_id), frame=type(frame).__name__)

    def _due_opens(self) -> list[Unresolved]:
        """Requests that are open for long and were not announced yet, oldest first."""
        before_s, durable = self._clock.time_s() - OPEN_AFTER_S, self._outbox.durable
        due: list[Unresolved] = []
        for entry in self._outbox.unresolved.values():
            if entry.frame.opened_at_s > before_s or len(due) == self._limit:
                break
            if not entry.shipped and entry.end <= durable:
                due.append(entry)
        return due

    def _read(self, cursor: Position, durable: Position) -> tuple[list[UsageRecord], Position]:
        """The next records from `cursor` on, a batch at most, and where they end."""
        records: list[UsageRecord] = []
        limit = self._limit
        for number in segment_numbers(self._outbox.directory):
            if number < cursor.segment or number > durable.segment:
                continue
            if number > cursor.segment:
                cursor = Position(number, 0)
            cursor = self._read_segment(cursor, durable, limit, records)
            if len(records) == limit:
                break
        return records, cursor

    def _read_segment(
            self, cursor: Position, durable: Position, limit: int, records: list[UsageRecord]) -> Position:
        path = segment_path(self._outbox.directory, cursor.segment)
        offset = cursor.offset
        with path.open("rb") as file:
            size = durable.offset if cursor.segment == durable.segment else path.stat().st_size
            while offset < size and len(records) < limit:
                file.seek(offset)
                data = file.read(min(READ_BYTES, size - offset))
                base, at_end = offset, offset + len(data) >= size
                for start, end, payload in scan(data, at_end):
                    self._take(payload, data[start:end], Position(cursor.segment, base + start), records)
                    offset = base + end
                    if len(records) == limit:
                        break
        return Position(cursor.segment, offset)

    def _take(self, payload: bytes | None, content: bytes, at: Position, records: list[UsageRecord]) -> None:
        try:
            usage = decode(payload) if payload is not None else None
        except Unreadable:
            usage = None
        if usage is None:
            set_aside(self._outbox.directory, f"{at.segment}-{at.offset}", content, self._metrics)
        elif isinstance(usage, UsageRecord):
            records.append(usage)


def _load_cursor(path: Path, written: Position) -> Position:
    """Where the last process was; the start of the log if that is not known, or lies beyond the log's end: then it is
    of segments that are gone, and whatever took their numbers is not shipped."""
    try:
        stored = json.loads(path.read_bytes())
        cursor = Position(int(stored["segment"]), int(stored["offset"]))
    except FileNotFoundError:
        return Position(0, 0)
    except (ValueError, KeyError, TypeError) as error:
        log.warning("outbox_cursor_unreadable", error=str(error))
        return Position(0, 0)
    if cursor > written:
        log.warning("outbox_cursor_beyond_end", segment=cursor.segment, offset=cursor.offset)
        return Position(0, 0)
    return cursor


def _save_cursor(path: Path, cursor: Position) -> None:
    write_private(path, json.dumps(cursor._asdict()).encode())
