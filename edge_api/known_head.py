"""The next message of a connection, known by the bytes of the last one's head.

Clients and frontends send the same head again and again, but for the body's length. A message that comes whole in one
read, behind a head that the parser has just taken from this connection, need not be parsed again, and what was read
from that head holds for it, too. Anything else goes through the parser.
"""

import re
from typing import Generic, TypeVar

MAX_KNOWN_BYTES = 4_096
_find_length = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})\r\n", re.IGNORECASE).search

Told = TypeVar("Told")


class KnownHead(Generic[Told]):
    """A head by its bytes: all before the digits of its length, and all behind them. `told` is what it said."""

    __slots__ = ("_after", "_before", "told")

    def __init__(self, told: Told, before: bytes, after: bytes) -> None:
        self.told, self._before, self._after = told, before, after

    def body(self, data: bytes) -> bytes | None:
        """The body, if `data` is one whole message with this head; its length may be another."""
        before, after = self._before, self._after
        if not data.startswith(before):
            return None
        start = len(before)
        end = data.find(b"\r", start, start + 10)
        digits = data[start:end]
        if not digits.isdigit() or not data.startswith(after, end):
            return None
        start = end + len(after)
        return data[start:] if len(data) - start == int(digits) else None


def known_head(data: bytes, told: Told) -> KnownHead[Told] | None:
    """The head of `data`, which the parser took for one whole message that says `told`; null if what follows the head
    is not plainly one body with a length."""
    end = data.find(b"\r\n\r\n", 0, MAX_KNOWN_BYTES)
    found = _find_length(data, 0, end + 2) if end > 0 else None
    if found is None or len(data) - end - 4 != int(found[1]):
        return None
    return KnownHead(told, data[:found.start(1)], data[found.end(1):end + 4])
