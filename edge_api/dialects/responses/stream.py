"""Tells a chat stream as a response's events."""

from uuid import UUID

from msgspec import Raw, json

from edge_api import errors
from edge_api.dialects.base import ChunkHead
from edge_api.dialects.responses.answer import (
    CallItem,
    Failed,
    Item,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Response,
    Status,
    finished,
    item_id,
    item_of,
    status_of,
    usage_of,
)
from edge_api.dialects.turn import Change, Part, PartKind, Turn
from edge_api.dialects.upstream_chat import NO_USAGE, ChatAnswer, Choice, Delta, read_events
from edge_api.errors import Refusal
from edge_api.hot.answer import BadAnswer

NAMES = {PartKind.TEXT: "response.output_text", PartKind.REASONING: "response.reasoning_text",
         PartKind.CALL: "response.function_call_arguments"}


class ResponsesVoice:
    """One stream. It owns `response`, which is told at the start and, complete, at the end."""

    keep_alive = b": keep-alive\n\n"

    def __init__(self, response: Response, request_id: UUID) -> None:
        self._response, self._hex = response, request_id.hex
        self._turn = Turn()
        self._items: list[Item] = []
        self._logprobs: list[Raw] = []  # of the text that is open
        self._number = 0
        self._is_broken = False
        self._last = Choice()
        self._tier: str | None = None
        self._usage = NO_USAGE

    def begin(self) -> bytes:
        return (self._event("response.created", response=self._response)
                + self._event("response.in_progress", response=self._response))

    def tell(self, events: bytes) -> bytes:
        out: list[bytes] = []
        try:
            for answer in read_events(events):
                self._take(answer, out)
        except BadAnswer:
            self._is_broken = True
        return b"".join(out)

    def end(self, events: bytes) -> bytes:
        out = [self.tell(events)]
        if self._is_broken:
            unreadable = Refusal(errors.UPSTREAM_BROKEN, "the model's answer could not be read")
            return out[0] + self.fail(unreadable, ChunkHead())
        steps = self._turn.finish()
        for at, (change, part, piece) in enumerate(steps):
            self._render(change, part, piece, [], status_of(self._last, is_last=at == len(steps) - 1), out)
        finished(self._response, self._last, self._items, self._usage, self._tier)
        out.append(self._event(f"response.{self._response.status}", response=self._response))
        return b"".join(out)

    def fail(self, refused: Refusal, head: ChunkHead) -> bytes:
        response, fault = self._response, refused.fault
        response.status = "failed"
        response.error = Failed(
            "rate_limit_exceeded" if refused.status == 429 else "server_error", refused.message, fault.type,
            refused.param, {**refused.metadata, "code": fault.code, "retryable": fault.retry})
        response.output = self._items
        response.usage = usage_of(self._usage) if self._usage is not NO_USAGE else None
        return self._event("response.failed", response=response)

    def _take(self, answer: ChatAnswer, out: list[bytes]) -> None:
        self._usage = answer.usage or self._usage
        self._tier = answer.service_tier or self._tier
        if not answer.choices:
            return
        choice = answer.choices[0]
        if choice.finish_reason:
            self._last = choice
        logprobs = (choice.logprobs and choice.logprobs.content) or []
        for change, part, piece in self._turn.take(choice.delta or Delta()):
            self._render(change, part, piece, logprobs, "completed", out)

    def _render(self, change: Change, part: Part, piece: str, logprobs: list[Raw], status: Status,
                out: list[bytes]) -> None:
        at = len(self._items)
        if change is Change.OPENED:
            self._open(item_of(part, at, self._hex, "in_progress", []), out)
        elif change is Change.GREW:
            fields: dict[str, object] = {"delta": piece}
            if part.kind is PartKind.TEXT:
                self._logprobs += logprobs
                fields["logprobs"] = logprobs
            out.append(self._part_event(f"{NAMES[part.kind]}.delta", part, **fields))
        else:
            self._close(part, item_of(part, at, self._hex, status, self._logprobs), out)
            self._logprobs = []

    def _open(self, item: Item, out: list[bytes]) -> None:
        """An item is told empty, its content part after it."""
        at = len(self._items)
        if isinstance(item, CallItem):
            item.arguments = ""
            out.append(self._event("response.output_item.added", output_index=at, item=item))
            return
        empty: OutputText | ReasoningText = ReasoningText("") if isinstance(item, ReasoningItem) else OutputText("")
        item.content = []
        out.append(self._event("response.output_item.added", output_index=at, item=item))
        out.append(self._event("response.content_part.added", item_id=item.id, output_index=at, content_index=0,
                               part=empty))

    def _close(self, part: Part, item: Item, out: list[bytes]) -> None:
        at = len(self._items)
        if isinstance(item, CallItem):
            out.append(self._part_event(f"{NAMES[part.kind]}.done", part, name=item.name, arguments=item.arguments))
        else:
            content = item.content[0]
            fields = {"logprobs": content.logprobs} if isinstance(content, OutputText) else {}
            out.append(self._part_event(f"{NAMES[part.kind]}.done", part, text=content.text, **fields))
            out.append(self._event("response.content_part.done", item_id=item.id, output_index=at, content_index=0,
                                   part=content))
        out.append(self._event("response.output_item.done", output_index=at, item=item))
        self._items.append(item)

    def _part_event(self, name: str, part: Part, /, **fields: object) -> bytes:
        at = len(self._items)
        place: dict[str, object] = {"item_id": item_id(part, at, self._hex), "output_index": at}
        if part.kind is not PartKind.CALL:
            place["content_index"] = 0
        return self._event(name, **place, **fields)

    def _event(self, name: str, /, **fields: object) -> bytes:
        event = {"type": name, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (name.encode(), json.encode(event))
