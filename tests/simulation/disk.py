"""A machine's disk, in memory. What was written survives kill -9; what was not synced may not survive a loss of power.

`Os` stands in for the module `os` where the outbox writes, and `Place` for a directory or a file's path, so that the
product's own code does the writing, syncing, cutting and deleting.
"""

import io
import os
from collections.abc import Iterator
from random import Random

NEVER_OLD_S = 10**11


class Content:
    """A file: its bytes, and how many of them are synced. `listed`: its directory entry is."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = 0
        self.listed = False


class Disk:
    """Owns the files of one machine by path. `full_writes` > 0: so many writes more fail."""

    def __init__(self) -> None:
        self.files: dict[str, Content] = {}

    def lose_power(self, chance: Random) -> bool:
        """What was not synced is gone, wholly or from somewhere on; whether anything was."""
        is_less = False
        for name, content in sorted(self.files.items()):
            if not content.listed and chance.random() < 0.5:
                is_less = is_less or bool(content.data)
                del self.files[name]
                continue
            kept = chance.randint(content.synced, len(content.data))
            is_less = is_less or kept < len(content.data)
            del content.data[kept:]
            content.synced = len(content.data)
            content.listed = True
        return is_less


class Place:
    """A path on a simulated disk: as much of `pathlib.Path` as the product uses there."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.disk, self._name = disk, name

    def __truediv__(self, other: str) -> "Place":
        return Place(self.disk, f"{self._name}/{other}")

    def __lt__(self, other: "Place") -> bool:
        return self._name < other._name

    def __str__(self) -> str:
        return self._name

    @property
    def name(self) -> str:
        return self._name.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.partition(".")[0]

    @property
    def parent(self) -> "Place":
        return Place(self.disk, self._name.rpartition("/")[0])

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Directories are there."""

    def exists(self) -> bool:
        return self._name in self.disk.files

    def glob(self, pattern: str) -> Iterator["Place"]:
        suffix = pattern.removeprefix("*")
        for name in list(self.disk.files):
            inside = name.removeprefix(self._name + "/")
            if inside != name and "/" not in inside and inside.endswith(suffix):
                yield Place(self.disk, name)

    def stat(self) -> os.stat_result:
        return os.stat_result((0, 0, 0, 0, 0, 0, len(self._content().data), 0, NEVER_OLD_S, 0))

    def unlink(self, missing_ok: bool = False) -> None:
        self.disk.files.pop(self._name, None)

    def replace(self, other: "Place") -> None:
        self.disk.files[str(other)] = self.disk.files.pop(self._name)

    def touch(self, mode: int = 0o666) -> None:
        self.write_whole(b"")

    def read_bytes(self) -> bytes:
        return bytes(self._content().data)

    def write_whole(self, content: bytes) -> None:
        """As `signing.write_private`: whole and synced, or not at all."""
        made = Content()
        made.data, made.synced, made.listed = bytearray(content), len(content), True
        self.disk.files[self._name] = made

    def open(self, mode: str = "rb") -> io.BytesIO:
        return io.BytesIO(self.read_bytes())

    def _content(self) -> Content:
        try:
            return self.disk.files[self._name]
        except KeyError as error:
            raise FileNotFoundError(self._name) from error


class Os:
    """The calls of `os` that the outbox makes, for places; descriptors are those of this object."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Place, Content | None]] = {}
        self._next = 3

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def stat(self, place: Place) -> os.stat_result:
        return place.stat()

    def open(self, place: Place, flags: int, mode: int = 0o777) -> int:
        content = place.disk.files.get(str(place))
        if not flags & os.O_DIRECTORY:
            if content is None and flags & os.O_CREAT:
                content = place.disk.files[str(place)] = Content()
            elif content is None:
                raise FileNotFoundError(str(place))
            elif flags & os.O_EXCL:
                raise FileExistsError(str(place))
        self._next += 1
        self._open[self._next] = (place, content)
        return self._next

    def write(self, descriptor: int, data: bytes) -> int:
        self._file(descriptor).data += data
        return len(data)

    def ftruncate(self, descriptor: int, size: int) -> None:
        content = self._file(descriptor)
        del content.data[size:]
        content.synced = min(content.synced, size)

    def fdatasync(self, descriptor: int) -> None:
        content = self._file(descriptor)
        content.synced = len(content.data)

    def fsync(self, descriptor: int) -> None:
        place, content = self._open[descriptor]
        if content is not None:
            content.synced = len(content.data)
            return
        for name, inside in place.disk.files.items():
            if name.startswith(str(place) + "/"):
                inside.listed = True

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def _file(self, descriptor: int) -> Content:
        content = self._open[descriptor][1]
        assert content is not None
        return content
