"""A model's turn, put together from chat's deltas: what it thought, said and called, one part after the other.

Dialects that tell a turn as a list of parts are rendered from its steps. Chat lets the fragments of parallel calls
mix; parts never do: a call begins when the one before it is whole, and what comes of it earlier waits.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import json

from edge_api.dialects.upstream_chat import CallPiece, Delta

LOOSE_PIECES = 256


class PartKind(StrEnum):
    """What a part is."""

    REASONING = "reasoning"
    TEXT = "text"
    CALL = "call"


class Change(StrEnum):
    """What became of a part."""

    OPENED = "opened"
    GREW = "grew"
    CLOSED = "closed"


class Part:
    """One part of a turn. `call_id` and `name` are a call's; a call's text is its arguments."""

    __slots__ = ("_pieces", "call_id", "is_closed", "kind", "name")

    def __init__(self, kind: PartKind, call_id: str = "", name: str = "") -> None:
        self.kind, self.call_id, self.name = kind, call_id, name
        self.is_closed = False
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        if len(self._pieces) == LOOSE_PIECES:  # one string is much smaller than the pieces of it
            self._pieces = [self.text]

    @property
    def text(self) -> str:
        """All of it, as far as it has come."""
        return "".join(self._pieces)

    @property
    def is_whole(self) -> bool:
        """Whether nothing can follow: a call whose arguments are complete JSON."""
        text = self.text.rstrip()
        return text.endswith("}") and is_json_object(text)


class Step(NamedTuple):
    """One change; `piece` is what a part grew by."""

    change: Change
    part: Part
    piece: str = ""


class Turn:
    """Owns the parts of one turn, in order. White space alone is no part: models write it between calls. It waits for
    what follows."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._open: Part | None = None
        self._calls: dict[int, Part] = {}
        self._last_index = -1
        self._waiting: list[Part] = []
        self._blank, self._blank_kind = "", PartKind.TEXT

    def take(self, delta: Delta) -> list[Step]:
        """What a delta, or a whole message, changes."""
        steps: list[Step] = []
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            self._say(PartKind.REASONING, reasoning, steps)
        if delta.content:
            self._say(PartKind.TEXT, delta.content, steps)
        for piece in delta.tool_calls or ():
            self._call(piece, steps)
        return steps

    def finish(self) -> list[Step]:
        """The turn is over: what is open is closed, what waits is told."""
        steps: list[Step] = []
        self._leave(steps)
        return steps

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def _say(self, kind: PartKind, text: str, steps: list[Step]) -> None:
        part, blank, self._blank = self._open, self._blank, ""
        if part is None or part.kind is not kind:
            text = blank + text if kind is self._blank_kind else text
            if text.isspace():
                self._blank, self._blank_kind = text, kind
                return
            self._leave(steps)
            part = Part(kind)
            self._begin(part, steps)
        self._grow(part, text, steps)

    def _call(self, piece: CallPiece, steps: list[Step]) -> None:
        self._blank = ""
        part, function = self._part_of(piece), piece.function
        if part.is_closed:
            return  # its arguments were complete: only white space can follow
        part.call_id = part.call_id or piece.id or ""
        part.name = part.name or (function and function.name) or ""
        text = (function and function.arguments) or ""
        if part is self._open:
            if text:
                self._grow(part, text, steps)
        else:
            part.add(text)
            if part not in self._waiting:
                self._waiting.append(part)
        while self._waiting and self._waiting[0].name and self._is_free():
            self._close(steps)
            self._begin(self._waiting.pop(0), steps)

    def _part_of(self, piece: CallPiece) -> Part:
        """The call that a fragment belongs to. Source of the rules: engines that leave out `index`, that give each call
        the index 0, that repeat the id in every fragment, or send later names empty."""
        index = self._last_index if piece.index is None else piece.index
        known, is_named = self._calls.get(index), bool(piece.function and piece.function.name)
        is_other = is_named and piece.id and known is not None and known.call_id and known.call_id != piece.id
        if known is None or is_other:
            index = index if piece.index is not None else len(self._calls)
            known = self._calls[index] = Part(PartKind.CALL)
        self._last_index = index
        return known

    def _is_free(self) -> bool:
        return self._open is None or self._open.kind is not PartKind.CALL or self._open.is_whole

    def _leave(self, steps: list[Step]) -> None:
        self._close(steps)
        for part in self._waiting:
            self._begin(part, steps)
            self._close(steps)
        self._waiting.clear()

    def _begin(self, part: Part, steps: list[Step]) -> None:
        self.parts.append(part)
        self._open = part
        steps.append(Step(Change.OPENED, part))
        if part.text:
            steps.append(Step(Change.GREW, part, part.text))

    def _grow(self, part: Part, text: str, steps: list[Step]) -> None:
        part.add(text)
        steps.append(Step(Change.GREW, part, text))

    def _close(self, steps: list[Step]) -> None:
        if self._open is not None:
            self._open.is_closed = True
            steps.append(Step(Change.CLOSED, self._open))
            self._open = None


def is_json_object(text: str) -> bool:
    """Whether the text is one JSON object."""
    try:
        _decode_object(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode
