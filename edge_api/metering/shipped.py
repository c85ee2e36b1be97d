"""Usage that was shipped and acknowledged, kept on disk for a while: the database that acknowledged it may be lost, and
an older copy take its place. Then it is shipped once more; what the copy has is a duplicate there.

Segments move here when the outbox releases them. The oldest go first, by age and by size.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from control_plane.contracts.clock import Clock
from control_plane.contracts.usage import UsageRecord
from edge_api.metering.frames import Unreadable, decode, scan

MARK = "ship-again"

class ShippedSegments:
    """Owns a directory of released segments, at most `max_bytes` of them and none older than `keep_s`."""

    def __init__(self, directory: Path, keep_s: float, max_bytes: int, clock: Clock) -> None:
        self._directory, self._keep_s, self._max_bytes, self._clock = directory, keep_s, max_bytes, clock
        for place in (directory.parent, directory):  # a parent that mkdir makes by itself is open to everybody
            place.mkdir(parents=True, exist_ok=True, mode=0o700)

    def keep(self, segment: Path) -> None:
        """Takes over a segment that the outbox needs no more."""
        if self._max_bytes:
            segment.replace(self._directory / segment.name)
        else:
            segment.unlink(missing_ok=True)
        self._forget()

    def records(self) -> Iterator[list[UsageRecord]]:
        """What is kept, the oldest first, a segment at a time. Damage is passed over: it was told of before."""
        for path in self._paths():
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue  # forgotten meanwhile
            yield list(_records(data))

    @property
    def is_due(self) -> bool:
        """Whether all that is kept is to be shipped once more; a restart remembers it."""
        return (self._directory / MARK).exists()

    def ship_again(self) -> None:
        """All that is kept is to be shipped once more."""
        (self._directory / MARK).touch(mode=0o600)

    def shipped_again(self) -> None:
        """All was."""
        (self._directory / MARK).unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        return sorted(self._directory.glob("*.seg"))

    def _forget(self) -> None:
        """By when each was written last, which is when its newest record ended, or nearly."""
        kept, left_bytes, oldest_s = self._paths(), self._max_bytes, self._clock.time_s() - self._keep_s
        for path in reversed(kept):
            found = os.stat(path)
            left_bytes -= found.st_size
            if left_bytes < 0 or found.st_mtime < oldest_s:
                path.unlink(missing_ok=True)


def _records(data: bytes) -> Iterator[UsageRecord]:
    for stretch in scan(data, at_end=True):
        if stretch.payload is None:
            continue
        try:
            usage = decode(stretch.payload)
        except Unreadable:
            continue
        if isinstance(usage, UsageRecord):
            yield usage
