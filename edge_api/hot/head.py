"""What a request's head says, and how the next request of a connection is known by the bytes of the last one's head.

Clients send the same head again and again, but for the body's length. A request that comes whole in one read, behind a
head that the parser has just taken from this connection, need not be parsed again, and what was read from that head
holds for it, too. Anything else goes through the parser.
"""

import re

from control_plane.contracts.keys import Principal
from edge_api.dialects.base import Dialect

MAX_KNOWN_BYTES = 4_096
_find_length = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})\r\n", re.IGNORECASE).search

Credential = tuple[bytes, bytes, str]


class Head:
    """`headers` have lower-case names. `credential` is what it shows, the secret in that and its digest, once read;
    `admits` is whom it was found to be good for."""

    __slots__ = ("admits", "chunked", "credential", "dialect", "expects_continue", "headers", "keep_alive")

    def __init__(self, dialect: Dialect, headers: dict[bytes, bytes], keep_alive: bool, chunked: bool) -> None:
        self.dialect, self.headers, self.keep_alive, self.chunked = dialect, headers, keep_alive, chunked
        self.expects_continue = b"expect" in headers and headers[b"expect"].lower() == b"100-continue"
        self.credential: Credential | None = None
        self.admits: Principal | None = None


class KnownHead:
    """A head by its bytes: all before the digits of its length, and all behind them."""

    __slots__ = ("_after", "_before", "head")

    def __init__(self, head: Head, before: bytes, after: bytes) -> None:
        self.head, self._before, self._after = head, before, after

    def body(self, data: bytes) -> bytes | None:
        """The body, if `data` is one whole request with this head; the length may be another."""
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


def known_head(data: bytes, head: Head) -> KnownHead | None:
    """The head of `data`, which the parser took for one whole request; null if what follows it is not plainly one body
    with a length."""
    end = data.find(b"\r\n\r\n", 0, MAX_KNOWN_BYTES)
    found = _find_length(data, 0, end + 2) if end > 0 else None
    headers = head.headers
    if (found is None or len(data) - end - 4 != int(found[1]) or not head.keep_alive or b"expect" in headers
            or b"transfer-encoding" in headers):
        return None
    del headers[b"content-length"]  # the next one's is another
    return KnownHead(head, data[:found.start(1)], data[found.end(1):end + 4])
