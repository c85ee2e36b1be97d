"""What happened in a run, on disk as it happens: every try of every request, and every fault done to the stack.

One JSON object a line, each written at once, so that a driver that dies leaves what it saw. Several processes write
several files; together they are one history. Times are Unix seconds.
"""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec


class Verdict(StrEnum):
    """How a try ended for its client. `WRONG`: a whole answer that is not what was asked for."""

    FINISHED = "finished"
    REFUSED = "refused"
    UNREACHED = "unreached"
    CUT = "cut"
    HUNG = "hung"
    WRONG = "wrong"


class Try(msgspec.Struct, frozen=True, tag="try"):
    """One try of the request `number` of a load, at an edge. `wanted` and `tokens` are completion tokens, asked for and
    delivered, counted by the client from the text alone; `digest` is that text's SHA-256. `request_id` is empty if no
    head came. `retry`: the error, or the way the connection ended, says that trying again may help. `last`: no further
    try."""

    load: int
    number: int
    attempt: int
    edge: int
    team: str
    way: str
    wanted: int
    began_s: float
    ended_s: float
    verdict: Verdict
    retry: bool
    last: bool
    status: int = 0
    request_id: str = ""
    datacenter: str = ""
    tokens: int = 0
    digest: str = ""
    first_s: float | None = None
    fault: str = ""


class Held(msgspec.Struct, frozen=True, tag="held"):
    """A request that was due and not sent: as many were open as the load may have."""

    number: int
    at_s: float


class Fault(msgspec.Struct, frozen=True, tag="fault"):
    """Something that was done to a process of the stack, and until when it could be felt (0: to the end)."""

    kind: str
    victim: str
    at_s: float
    until_s: float = 0.0
    pid: int = 0
    detail: str = ""


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    """An operation that an operator ordered meanwhile, and how it ended for him; `exit_code` is the command line's."""

    kind: str
    datacenter: str
    at_s: float
    ended_s: float
    state: str
    operation: str = ""
    exit_code: int = 0


Entry = Try | Held | Fault | Moved

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


class Journal:
    """Appends to one file of a history."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def write(self, entry: Entry) -> None:
        """One line with one write(2)."""
        self._file.write(_encode(entry) + b"\n")

    def close(self) -> None:
        self._file.close()


class History(msgspec.Struct):
    """All of it, each kind in the order of its files."""

    tries: list[Try]
    held: list[Held]
    faults: list[Fault]
    moves: list[Moved]

    def rate_per_s(self) -> float:
        """Requests begun a second in the last load: the ones before it only make the stack's acquaintance."""
        began_s = [one.began_s for one in self.tries if one.attempt == 1 and one.load == self.tries[-1].load]
        return (len(began_s) - 1) / (max(began_s) - min(began_s)) if len(began_s) > 1 else 0.0

    def final(self) -> list[Try]:
        """The last try of each request."""
        return [one for one in self.tries if one.last]


def read(paths: Iterable[Path]) -> History:
    """The history in these files; one that is not there says nothing, and a line that was cut is no line."""
    found = History([], [], [], [])
    lists = {Try: found.tries, Held: found.held, Fault: found.faults, Moved: found.moves}
    for path in paths:
        for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
            entry = _decode(line)
            lists[type(entry)].append(entry)  # type: ignore[arg-type]
    return found
