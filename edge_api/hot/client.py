"""Who asked: what a request on its way upstream needs of whoever waits for its answer."""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from edge_api.errors import Refusal

CLIENT_GONE_STATUS = 499


class Client(Protocol):
    """The exchange that a request belongs to, or the fan-out that it is a choice of."""

    request_id: UUID
    headers: dict[bytes, bytes]
    started_s: float
    chunked: bool
    write: Callable[[bytes], None]

    def attempt_number(self, nth: int) -> int:
        """Where among all attempts of the request the nth of this one's will stand in its record."""
        ...

    def begin_stream(self, named: bytes) -> bytes:
        """The head of a stream that begins; `named` is the header that names its datacenter."""
        ...

    def answer(self, named: bytes, body: bytes) -> None:
        """Answers with a whole body; `finish` follows."""
        ...

    def refuse(self, refused: Refusal, datacenter: bytes = b"") -> None: ...

    def finish(self, status: int) -> None: ...
