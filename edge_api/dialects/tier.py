"""The service tier that an answer tells, to a client that asked for one.

There is one tier: whatever is asked for is served, and billed, as the default one, and the answer says so. What an
engine says of tiers is not passed on: it was never asked for one.
"""

import msgspec
from msgspec import json

from edge_api.dialects.base import ChunkHead, StreamVoice
from edge_api.errors import Refusal
from edge_api.hot.answer import BadAnswer
from edge_api.hot.sse import EVENT_END, payload

SERVED_TIER = "default"
KEY = b'"service_tier"'
TOLD = b'{"service_tier":"%b",' % SERVED_TIER.encode()
DATA = b"data: "
_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode


def tell_tier(answer: bytes) -> bytes:
    """A JSON object with the tier in it.

    Raises:
        BadAnswer: it is none.
    """
    if answer.startswith(b'{"') and KEY not in answer:
        return TOLD + answer[1:]
    try:
        fields = _decode_object(answer)
    except msgspec.DecodeError:
        raise BadAnswer("the answer is not a JSON object") from None
    return json.encode(fields | {"service_tier": SERVED_TIER})


class TierVoice:
    """Tells a stream as another voice does, with the tier in each chunk."""

    def __init__(self, voice: StreamVoice) -> None:
        self._voice, self.keep_alive = voice, voice.keep_alive

    def begin(self) -> bytes:
        return self._voice.begin()

    def tell(self, events: bytes) -> bytes:
        return self._voice.tell(b"".join(map(_told, events.split(EVENT_END)))) if events else b""

    def end(self, events: bytes) -> bytes:
        return self._voice.end(self.tell(events))

    def fail(self, refused: Refusal, head: ChunkHead) -> bytes:
        return self._voice.fail(refused, head)


def _told(event: bytes) -> bytes:
    """An event, its end put back; nothing of nothing, which is what follows the last end."""
    if not event:
        return b""
    data = payload(event)
    try:
        return (DATA + tell_tier(data) if data.startswith(b"{") else event) + EVENT_END
    except BadAnswer:
        return event + EVENT_END
