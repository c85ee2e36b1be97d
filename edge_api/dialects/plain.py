"""The dialects that datacenters speak themselves: their bytes pass through, requests and answers alike."""

from collections.abc import Mapping
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import json

from edge_api.dialects.base import Asked, ChunkHead, Upstream
from edge_api.dialects.reading import MAX_COMMAS, read_as, stream_options
from edge_api.dialects.tier import TierVoice, tell_tier
from edge_api.errors import Refusal
from edge_api.hot.fields import ChatFields, EmbeddingFields, Fields, PromptFields

Kind = TypeVar("Kind", bound=Fields)


MAX_IDS = 4_000_000  # prompts of token ids stay bytes
KEEP_ALIVE = b": keep-alive\n\n"
DONE_EVENT = b"data: [DONE]\n\n"
OBJECTS = {Upstream.CHAT: "chat.completion.chunk", Upstream.COMPLETIONS: "text_completion"}
EMPTY: Mapping[Upstream, Mapping[str, object]] = {
    Upstream.CHAT: {"delta": {"content": ""}}, Upstream.COMPLETIONS: {"text": ""}}


class PlainVoice:
    """Tells upstream events as they are."""

    keep_alive = KEEP_ALIVE

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    def begin(self) -> bytes:
        return KEEP_ALIVE

    def tell(self, events: bytes) -> bytes:
        return events

    def end(self, events: bytes) -> bytes:
        return events + DONE_EVENT

    def fail(self, refused: Refusal, head: ChunkHead) -> bytes:
        """A chunk that every client takes for an error: OpenAI's raise on `error`, OpenRouter's read the finish."""
        fault = refused.fault
        return b"data: " + json.encode({
            "id": head.id, "object": OBJECTS[self._upstream], "created": head.created, "model": head.model,
            "choices": [{"index": 0, **EMPTY[self._upstream], "finish_reason": "error"}],
            "error": {"message": refused.message, "type": fault.type, "param": refused.param, "code": fault.code,
                      "metadata": {"error_type": fault.error_type, "retryable": fault.retry}},
        }) + b"\n\n"


class Plain(Generic[Kind]):
    """A dialect without a voice of its own, unless the client asked for a service tier."""

    def __init__(self, name: str, upstream: Upstream, fields: type[Kind], max_commas: int = MAX_COMMAS) -> None:
        self.name, self._upstream, self._decoder = name, upstream, json.Decoder(fields)
        self._max_commas = max_commas

    def read(self, body: bytes, headers: Mapping[bytes, bytes], request_id: UUID) -> Asked:
        fields = read_as(self._decoder, body, self._max_commas)
        options = stream_options(fields)
        tells_tier = fields.service_tier is not None
        return Asked(
            self._upstream, body, fields, streamed=bool(fields.stream),
            wants_usage=bool(options and options.include_usage),
            wants_each_usage=bool(options and options.continuous_usage_stats),
            voice=(lambda: TierVoice(PlainVoice(self._upstream))) if tells_tier else None,
            answer=tell_tier if tells_tier else None)

    def refusal(self, refused: Refusal, request_id: UUID) -> tuple[int, bytes]:
        return refused.status, refused.body()


CHAT = Plain("chat", Upstream.CHAT, ChatFields)
COMPLETIONS = Plain("completions", Upstream.COMPLETIONS, PromptFields, MAX_IDS)
EMBEDDINGS = Plain("embeddings", Upstream.EMBEDDINGS, EmbeddingFields, MAX_IDS)
