"""Tells a chat stream as a message's events."""

from uuid import UUID

from msgspec import json

from edge_api import errors
from edge_api.dialects.base import ChunkHead
from edge_api.dialects.messages.answer import (
    NO_INPUT,
    Block,
    Manner,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    Usage,
    call_id_of,
    message_id,
    stop_of,
    usage_of,
)
from edge_api.dialects.messages.errors import error_event
from edge_api.dialects.messages.stops import StopWatch
from edge_api.dialects.turn import Change, Part, PartKind, Step, Turn
from edge_api.dialects.upstream_chat import NO_USAGE, ChatAnswer, Choice, Delta, read_events
from edge_api.errors import Refusal
from edge_api.hot.answer import BadAnswer

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
DELTAS = {PartKind.TEXT: ("text_delta", "text"), PartKind.REASONING: ("thinking_delta", "thinking"),
          PartKind.CALL: ("input_json_delta", "partial_json")}


class MessagesVoice:
    """One stream. The message starts with the first event that says how long the prompt was; or, if none does, with the
    first that has something to tell."""

    keep_alive = PING

    def __init__(self, request_id: UUID, manner: Manner) -> None:
        self._request_id, self._manner = request_id, manner
        self._turn, self._watch = Turn(), StopWatch(manner.stops)
        self._index = -1  # of the block that is open
        self._has_started = self._is_broken = False
        self._last = Choice()
        self._tier: str | None = None
        self._usage = NO_USAGE

    def begin(self) -> bytes:
        return b""

    def tell(self, events: bytes) -> bytes:
        out: list[bytes] = []
        try:
            for answer in read_events(events):
                self._take(answer, out)
        except BadAnswer:
            self._is_broken = True
        return b"".join(out)

    def end(self, events: bytes) -> bytes:
        told = self.tell(events)
        if self._is_broken:
            unreadable = Refusal(errors.UPSTREAM_BROKEN, "the model's answer could not be read")
            return told + self.fail(unreadable, ChunkHead())
        out = [told]
        for delta in self._watch.finish(self._last.finish_reason):
            self._render(self._turn.take(delta), out)
        self._render(self._turn.finish(), out)
        self._start(out)
        out.append(_event("message_delta", delta=stop_of(self._last, self._watch, self._turn), usage=self._used()))
        out.append(_event("message_stop"))
        return b"".join(out)

    def fail(self, refused: Refusal, head: ChunkHead) -> bytes:
        return error_event(refused, self._request_id)

    def _take(self, answer: ChatAnswer, out: list[bytes]) -> None:
        self._usage = answer.usage or self._usage
        self._tier = answer.service_tier or self._tier
        if answer.usage is not None:
            self._start(out)
        if answer.choices:
            choice = answer.choices[0]
            if choice.finish_reason:
                self._last = choice
            for delta in self._watch.take(choice.delta or Delta()):
                self._render(self._turn.take(delta), out)

    def _start(self, out: list[bytes]) -> None:
        if not self._has_started:
            self._has_started = True
            out.append(_event("message_start", message=Message(
                message_id(self._request_id.hex), self._manner.model, [], None, None, self._used())))

    def _used(self) -> Usage:
        return usage_of(self._usage, self._tier)

    def _render(self, steps: list[Step], out: list[bytes]) -> None:
        for change, part, piece in steps:
            if self._manner.hides_thinking and part.kind is PartKind.REASONING:
                continue
            self._start(out)
            if change is Change.OPENED:
                self._index += 1
                out.append(_event("content_block_start", index=self._index, content_block=self._opened(part)))
            elif change is Change.GREW:
                kind, name = DELTAS[part.kind]
                out.append(_event("content_block_delta", index=self._index, delta={"type": kind, name: piece}))
            else:
                out.append(_event("content_block_stop", index=self._index))

    def _opened(self, part: Part) -> Block:
        if part.kind is PartKind.TEXT:
            return TextBlock("")
        if part.kind is PartKind.REASONING:
            return ThinkingBlock("")
        return ToolUseBlock(call_id_of(part, self._index, self._request_id.hex), part.name, NO_INPUT)


def _event(name: str, **fields: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), json.encode({"type": name, **fields}))
