"""What a dialect is to the edge: how a request of it is read, and how answers and errors are told in it.

Upstream there are three kinds of request; whatever a client speaks becomes one of them. A dialect that is told as it
comes (chat, completions, embeddings) has no `voice` and no `answer`: its bytes pass through.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol
from uuid import UUID

import msgspec

from edge_api.errors import Refusal
from edge_api.hot.fields import Fields


class Upstream(StrEnum):
    """What a datacenter's frontend is asked; the value is its path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"


class ChunkHead(msgspec.Struct, gc=False):
    """What the edge needs of a stream's chunks to write one of its own. Empty before the first chunk."""

    id: str = ""
    created: int = 0
    model: str = ""
    object: str = "chat.completion.chunk"


class StreamVoice(Protocol):
    """Tells one stream of upstream events to a client. What comes in are whole SSE events as a client of chat would get
    them, metering cut out, `data: [DONE]` never among them."""

    keep_alive: bytes
    """Written while the engine is silent; it may come before the first event and between any two."""

    def begin(self) -> bytes:
        """Written with the answer's head, before there is any event."""
        ...

    def tell(self, events: bytes) -> bytes:
        """One or more events, told; maybe nothing."""
        ...

    def end(self, events: bytes) -> bytes:
        """The last events (maybe none; the usage event is the last of them) and whatever ends the stream."""
        ...

    def fail(self, refused: Refusal, head: ChunkHead) -> bytes:
        """The error that ends a stream whose head is out. Nothing follows it."""
        ...


class Asked(msgspec.Struct, frozen=True):
    """A request, read. `body` is what goes upstream, as JSON of the kind `upstream`, before the edge splices its own
    switches in; `fields` were decoded from it. `wants_usage`: a usage event at the end of a stream; `wants_each_usage`:
    in every event as well (a voice may want it for itself)."""

    upstream: Upstream
    body: bytes
    fields: Fields
    streamed: bool
    wants_usage: bool
    wants_each_usage: bool
    voice: Callable[[], StreamVoice] | None = None
    answer: Callable[[bytes], bytes] | None = None
    """Tells a whole unary answer, whose `usage` has its cost already."""
    counts: Callable[[int], bytes] | None = None
    """Tells how many tokens the prompt has: then nothing is generated, and this is the answer."""


class Dialect(Protocol):
    """One wire format."""

    name: str
    """As usage records and metrics name it."""

    def read(self, body: bytes, headers: Mapping[bytes, bytes], request_id: UUID) -> Asked:
        """The request in `body`; `headers` have lower-case names.

        Raises:
            Refusal: it names the field that is wrong.
        """
        ...

    def refusal(self, refused: Refusal, request_id: UUID) -> tuple[int, bytes]:
        """HTTP status and JSON body of an error in this dialect's shape."""
        ...
