"""The usage outbox: append-only segment files on this edge's disk, until the control plane has stored what is in them.

A frame is in the file when `open` or `record` returns (one write(2)), so kill -9 loses none; fsync follows in groups
and moves `durable`, beyond which nothing is shipped. Segments are released from the oldest on, once they are wholly
shipped; an `open` frame that still waits for its record is carried forward first, so that a restart always finds it.
Nothing here is shared between processes: the state directory belongs to one edge.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import msgspec
import structlog

from control_plane.contracts.usage import UsageOpen, UsageRecord
from edge_api.hot.services import OutboxFull
from edge_api.metering.frames import Position, Usage, encode
from edge_api.metrics import Metrics

GROUP_S = 0.04  # and the fsync itself, within the 50 ms that are promised
RECORD_RESERVE = 8

log = structlog.get_logger()


class Unresolved(msgspec.Struct, gc=False):
    """An `open` frame whose record is not written yet. `segment` and `end_offset` are where it ends on disk."""

    frame: UsageOpen
    segment: int
    end_offset: int
    shipped: bool = False

    @property
    def end(self) -> Position:
        return Position(self.segment, self.end_offset)


def delete(segment: Path) -> None:
    """What becomes of a segment that nobody wants to keep."""
    segment.unlink(missing_ok=True)


class Outbox:
    """Owns the segment files. `size_bytes` is all that is unreleased; `written` and `durable` are how far the log goes.

    `open` is refused at `max_bytes`; records of requests that were let in may use an eighth more. `keeps_newest`:
    nobody ships it, so the oldest segments make room before anything is refused. `released` is given each segment that
    is not needed any more.
    """

    def __init__(self, directory: Path, segment_bytes: int, max_bytes: int, metrics: Metrics,
                 keeps_newest: bool = False, released: Callable[[Path], None] = delete) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.directory = directory
        self._may_drop, self._released = keeps_newest, released
        self._segment_bytes, self.max_bytes, self._metrics = segment_bytes, max_bytes, metrics
        self._sizes = {number: segment_path(directory, number).stat().st_size for number in segment_numbers(directory)}
        self.size_bytes = sum(self._sizes.values())
        self.unresolved: dict[UUID, Unresolved] = {}
        self._retiring: list[int] = []
        self._dirty, self._syncing, self._is_dirty = asyncio.Event(), asyncio.Lock(), False
        self._number = max(self._sizes, default=0)
        self._offset = 0
        self._unlisted: Path | None = None
        self._fd = self._new_segment()
        _sync_files([], directory)  # else, when power goes, its number, which is shipped, is given again
        self._unlisted = None
        self.durable = self._carried_to = self.written

    @property
    def written(self) -> Position:
        """Where the log ends."""
        return Position(self._number, self._offset)

    def open(self, frame: UsageOpen) -> None:
        """Journals a request before it is sent upstream. Each must be followed by its `record`.

        Raises:
            OutboxFull, OSError: it is not in the file.
        """
        self._append(frame, self.max_bytes)
        self.unresolved[frame.request_id] = Unresolved(frame, self._number, self._offset)

    def record(self, frame: UsageRecord) -> None:
        """Journals what a request used, before the client sees its end.

        Raises:
            OutboxFull, OSError: it is not in the file.
        """
        self._append(frame, self.max_bytes + self.max_bytes // RECORD_RESERVE)
        self.unresolved.pop(frame.request_id, None)

    async def run(self) -> None:
        """Makes durable what was written, in groups, for ever."""
        while True:
            await self._dirty.wait()
            await asyncio.sleep(GROUP_S)
            try:
                await self.sync()
            except OSError as error:
                log.error("outbox_fsync_failed", error=str(error))
                await asyncio.sleep(1)

    async def sync(self) -> None:
        """Makes durable all that was written before the call.

        Raises:
            OSError: the disk failed; `durable` stays.
        """
        async with self._syncing:
            self._dirty.clear()
            self._is_dirty = False
            target, retiring = self.written, list(self._retiring)
            if target == self.durable:
                return
            try:
                await asyncio.to_thread(_sync_files, [*retiring, self._fd], self._unlisted)
            except OSError:
                self._is_dirty = True
                self._dirty.set()
                raise
            self.durable = target
            if target.segment == self._number:
                self._unlisted = None
            del self._retiring[:len(retiring)]
            for descriptor in retiring:
                os.close(descriptor)

    def release(self, shipped: Position) -> None:
        """Lets go of the segments that end before `shipped` and hold nothing that is still needed."""
        for number in sorted(n for n in self._sizes if n < shipped.segment):
            if not self._is_free(number):
                return
            self._released(segment_path(self.directory, number))
            self.size_bytes -= self._sizes.pop(number)

    def drop_oldest(self, keep_bytes: int) -> int:
        """Deletes the oldest segments, shipped or not, until no more than `keep_bytes` are left, if that can be: the
        newest one stays, and open frames are carried as in `release`. Counts and tells the bytes that are gone."""
        dropped_bytes = 0
        for number, size in sorted(self._sizes.items()):
            if self.size_bytes <= keep_bytes or number == self._number:
                break
            self.release(Position(number + 1, 0))
            if number in self._sizes:
                break
            dropped_bytes += size
        if dropped_bytes:
            self._metrics.outbox_dropped_bytes.inc(dropped_bytes)
            log.warning("oldest_usage_dropped", bytes=dropped_bytes)
        return dropped_bytes

    def close(self) -> None:
        """Closes the files; what is in them stays."""
        for descriptor in [*self._retiring, self._fd]:
            os.close(descriptor)
        self._retiring.clear()

    def _append(self, usage: Usage, allowance_bytes: int) -> None:
        data = encode(usage)
        size = len(data)
        if self.size_bytes + size > allowance_bytes and not self._has_made_room(size, allowance_bytes):
            self._metrics.outbox_refusals.inc()
            raise OutboxFull(f"the usage outbox holds {self.size_bytes} bytes; at most {allowance_bytes}")
        try:
            if self._offset + size > self._segment_bytes:
                self._rotate()
            if os.write(self._fd, data) != size:
                self._take_back()
        except OSError:
            self._metrics.outbox_refusals.inc()
            raise
        self._offset += size
        self.size_bytes += size
        if not self._is_dirty:
            self._is_dirty = True
            self._dirty.set()

    def _has_made_room(self, size: int, allowance_bytes: int) -> bool:
        if not self._may_drop:
            return False
        self._may_drop = False  # what is carried forward while this drops must not drop more
        self.drop_oldest(allowance_bytes - self._segment_bytes)
        self._may_drop = True
        return self.size_bytes + size <= allowance_bytes

    def _take_back(self) -> None:
        """All of a frame or nothing: half a one would be damage for whoever reads the segment."""
        os.ftruncate(self._fd, self._offset)
        raise OSError(errno.ENOSPC, "the disk took only a part of a usage frame")

    def _rotate(self) -> None:
        full, size = self._fd, self._offset
        self._fd = self._new_segment()
        self._sizes[self._number - 1] = size
        self._offset = 0
        self._retiring.append(full)

    def _new_segment(self) -> int:
        path = segment_path(self.directory, self._number + 1)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._number += 1
        self._sizes[self._number] = 0
        self._unlisted = self.directory
        return descriptor

    def _is_free(self, number: int) -> bool:
        """Whether a shipped segment may go; open frames in it are written again, and must be durable, before it may."""
        pinned = [entry for entry in self.unresolved.values() if entry.end.segment <= number]
        for entry in pinned:
            try:
                self._append(entry.frame, self.max_bytes + self.max_bytes // RECORD_RESERVE)
            except (OutboxFull, OSError) as error:
                log.warning("outbox_carry_failed", error=str(error))
                return False
            entry.segment, entry.end_offset = self._carried_to = self.written
        return not pinned and self.durable >= self._carried_to


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:010d}.seg"


def segment_numbers(directory: Path) -> list[int]:
    """The segments that are there, oldest first."""
    return sorted(_numbers(directory))


def _numbers(directory: Path) -> Iterator[int]:
    for path in directory.glob("*.seg"):
        if path.stem.isdigit():
            yield int(path.stem)


def _sync_files(descriptors: list[int], directory: Path | None) -> None:
    """`directory`: it holds a file that is new since the last time, so its list of files must be durable, too."""
    for descriptor in descriptors:
        os.fdatasync(descriptor)
    if directory is None:
        return
    entry = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)
