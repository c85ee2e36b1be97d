"""A disk that forgets what was not fsynced when the power goes, and that takes its time for an fsync.

kill -9 alone loses nothing: the kernel keeps what was written. Here the edge notes, after each of its outbox's fsyncs,
how far each segment is durable; "losing power" is kill -9 and then cutting every segment there. What is made up: only
the outbox's segments forget, whole bytes at their end, never their middle; a file that was never fsynced is empty.
"""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from edge_api.metering import outbox

FSYNC_S = 0.3
NOTES = "durable.jsonl"


def lose_unsynced(notes: Path) -> None:
    """Makes this process note what is durable. To be called before the outbox is opened: what is there already was
    made durable by an earlier boot's repair, or is cut already."""
    directory = notes.parent / "edge" / "outbox"
    _note(notes, directory.glob("*.seg"))
    sync = outbox._sync_files

    def slow_sync(descriptors: list[int], listed: Path | None) -> None:
        paths = [Path(os.readlink(f"/proc/self/fd/{descriptor}")) for descriptor in descriptors]
        sizes = [path.stat().st_size for path in paths]
        time.sleep(FSYNC_S)
        sync(descriptors, listed)
        _write(notes, dict(zip(map(str, paths), sizes, strict=True)))

    outbox._sync_files = slow_sync


def lose_power(notes: Path) -> int:
    """Cuts every segment to what was durable; to be called once the edge is dead. How many bytes were forgotten."""
    durable: dict[str, int] = {}
    for line in notes.read_text().splitlines():
        durable |= json.loads(line)
    forgotten = 0
    for segment in (notes.parent / "edge" / "outbox").glob("*.seg"):
        size, kept = segment.stat().st_size, durable.get(str(segment), 0)
        if size > kept:
            forgotten += size - kept
            os.truncate(segment, kept)
    return forgotten


def _note(notes: Path, segments: Iterable[Path]) -> None:
    _write(notes, {str(segment): segment.stat().st_size for segment in segments})


def _write(notes: Path, sizes: dict[str, int]) -> None:
    with notes.open("a") as file:
        file.write(json.dumps(sizes) + "\n")
