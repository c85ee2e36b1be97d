"""What a stream's meter keeps, so that the stream can go on in another datacenter, and what is made of it then.

A plain stream pays two appends an event: the bytes of its token ids (about six a token), and the event itself into a
ring of the last few. Everything else is found out when the stream breaks. A stream that may call tools is searched for
calls, and only of one that is constrained the text is kept.

Committed ids are those whose text the client has, and nothing but their text. An engine holds text back for a moment: a
character that is not whole yet, the markup of a call, what may begin a stop string, the mark that ends reasoning. What
is not committed is given up at a break and generated again; text of it that the client has already is the seam's
`repeat`, to be muted when it comes again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from enum import IntFlag, StrEnum
from typing import NamedTuple

import msgspec
from msgspec import json

from control_plane.contracts.deployment import ReasoningFacts
from edge_api.hot import sse
from edge_api.tool_calls.verdict import Called

RING = 8
LONG_RING = 64  # with stop strings such as " x" nearly every word may be the beginning of one
SEGMENT_END = b"]"
NO_IDS = SEGMENT_END
_IDS = re.compile(rb'"completion_token_ids":\s*\[\s*\d')
_TEXT = re.compile(rb'"(?:content|text)":\s*"((?:[^"\\]|\\.)+)"')
CALLS = b'"tool_calls":'


class Watch(IntFlag):
    """What of a stream is looked at while it passes: `TEXT` of one whose text a grammar rules. `STOPS`: it has stop
    strings, so more of its events are kept."""

    NOTHING = 0
    CALLS = 1
    TEXT = 2
    STOPS = 4


class Reasoning(StrEnum):
    """Where an answer stands. `OPENED`: inside reasoning that the model opened by itself, not the chat template."""

    NONE = "none"
    INSIDE = "inside"
    OPENED = "opened"
    ENDED = "ended"


class Call(msgspec.Struct, gc=False):
    """The last tool call that the client has some of. `pieces` is how many events it came in. `log` are the ids that
    were committed before it began; none, if nobody can say."""

    index: int
    log: bytes | None
    id: str = ""
    name: str = ""
    arguments: str = ""
    pieces: int = 0


class Said(NamedTuple):
    """Text that a client has, by where it stands."""

    content: str = ""
    reasoning: str = ""


NOTHING_SAID = Said()


class Seam(msgspec.Struct, frozen=True):
    """Where a stream goes on. `ids` are the committed token ids as JSON has them in a list, without brackets, `tokens`
    how many. `text` is the content up to there (of a constrained stream), `repeat` what the client has beyond.

    `reasoning_tokens` is how many of the ids are reasoning, as far as the ids or the events tell; `is_thinking`: so is
    the newest text.

    `calls` is how many whole tool calls the client has, `half_call` one of which it has a part. `had_text`: it has some
    output; `was_counted`: its datacenter told the ids.
    """

    ids: bytes
    tokens: int
    reasoning: Reasoning = Reasoning.NONE
    reasoning_tokens: int = 0
    is_thinking: bool = False
    text: str = ""
    repeat: Said = NOTHING_SAID
    calls: int = 0
    half_call: Call | None = None
    had_text: bool = False
    was_counted: bool = False


class Journal:
    """Owns one stream's ids. The meter calls `watch` with each event that holds what is `sought` (nothing: no event),
    then appends to `log` the digits of the event's ids with their closing bracket, if it has any, and to `recent` the
    event, if it has data."""

    __slots__ = ("_before", "_call", "_calls", "_had_text", "_keeps_text", "_repeat", "_text", "_was_thinking", "log",
                 "recent", "sought")

    def __init__(self, watched: Watch = Watch.NOTHING) -> None:
        self.log = bytearray()
        self.recent: deque[bytes] = deque(maxlen=LONG_RING if watched & Watch.STOPS else RING)
        self._keeps_text = bool(watched & Watch.TEXT)
        self.sought = b"" if self._keeps_text else CALLS if watched & Watch.CALLS else None
        self._before = b""
        self._had_text = False
        self._repeat = NOTHING_SAID
        self._was_thinking = False
        self._text = bytearray()
        self._calls: list[Call] = []
        self._call: Call | None = None

    def watch(self, event: bytes) -> None:
        """Remembers what of an event's text and calls the client has."""
        if self._keeps_text:
            found = _TEXT.search(event)
            if found is not None:
                self._text += found[1]
        if CALLS in event:
            for piece in _choice(event).delta.tool_calls or ():
                self._watch_call(piece)

    def note_ids(self, ids: Sequence[int]) -> None:
        """Ids that did not come as bytes."""
        if ids:
            self.log += b",".join(b"%d" % one for one in ids) + SEGMENT_END

    @property
    def last(self) -> bytes:
        """The newest event with data; empty before the first."""
        return self.recent[-1] if self.recent else self._before

    @property
    def tokens(self) -> int:
        """How many ids have come, committed or not."""
        return self.log.count(b",") + self.log.count(SEGMENT_END)  # no segment is empty

    @property
    def committed_tokens(self) -> int:
        """How many ids gave the client text; all that came, if nobody can say."""
        cut = self._cut(frozenset())
        return self.tokens if cut is None else _count(cut.log.removesuffix(SEGMENT_END).replace(SEGMENT_END, b","))

    @property
    def called(self) -> Sequence[Called]:
        """The calls that the client has, as far as they have come; none of a stream that is not watched for them."""
        return [Called(call.name, call.arguments) for call in self._calls] if self._calls else ()

    def seam(self, reasoning: ReasoningFacts | None, stops: Iterable[str] = ()) -> Seam | None:
        """Where the stream goes on, if it broke now. None: so much text was held back that nobody can say."""
        half = self._half_call()
        cut = self._cut(frozenset(stop[0] for stop in stops if stop)) if half is None else _Cut.before(half)
        if cut is None:
            return None
        ids = cut.log.removesuffix(SEGMENT_END).replace(SEGMENT_END, b",")
        where = reasoning_at(ids, reasoning)
        is_thinking = self._is_thinking() and where is not Reasoning.ENDED
        thought = ids if is_thinking else _thought(ids, reasoning) if where is Reasoning.ENDED else b""
        return Seam(
            ids=ids, tokens=_count(ids), reasoning=where, reasoning_tokens=_count(thought),
            is_thinking=is_thinking,
            text=_unescaped(self._text).removesuffix(cut.repeat.content), repeat=cut.repeat,
            calls=len(self._calls) - (half is not None), half_call=half,
            had_text=self._had_text or any(map(has_text, self.recent)), was_counted=self.tokens > 0)

    def go_on(self, seam: Seam) -> None:
        """The stream goes on behind `seam`: what was not committed is generated, and counted, again."""
        self._before = self.last
        self._had_text = seam.had_text
        self._repeat = seam.repeat
        self._was_thinking = self._is_thinking()
        self.log[:] = seam.ids + SEGMENT_END if seam.ids else b""
        self.recent.clear()
        self._call = seam.half_call

    def _cut(self, begins_stop: frozenset[str]) -> _Cut | None:
        """The log up to the last event that certainly held nothing back. Where stop strings are held back, that is one
        after which the client got a character that begins none of them."""
        given_up, content, reasoning = 0, "", ""
        is_certain = not begins_stop
        for event in reversed(self.recent):
            choice = _choice(event)
            if _says(choice):
                said = _said(choice)
                if is_certain or said is None:
                    return _Cut(self._without(given_up), Said(content, reasoning))
                content, reasoning = said.content + content, said.reasoning + reasoning
                is_certain = (said.reasoning or said.content)[0] not in begins_stop
            given_up += bool(_IDS.search(event))
        if len(self.recent) == self.recent.maxlen:
            return None
        return _Cut(self._without(given_up), Said(self._repeat.content + content, self._repeat.reasoning + reasoning))

    def _is_thinking(self) -> bool:
        """Whether the newest text is reasoning. A template may open it without an id of the answer saying so."""
        for event in reversed(self.recent):
            choice = _choice(event)
            if _says(choice):
                said = _said(choice)
                return said is not None and not said.content
        return self._was_thinking

    def _without(self, given_up: int) -> bytes:
        """The log less its last segments."""
        end = len(self.log)
        for _ in range(given_up):
            end = self.log.rfind(SEGMENT_END, 0, max(end - 1, 0)) + 1
        return bytes(self.log[:end])

    def _watch_call(self, piece: CallPiece) -> None:
        call = self._call
        if call is None or piece.index != call.index:
            if call is not None:
                call.log = None  # only the last call can be cut
            cut = self._cut(frozenset())
            call = self._call = Call(piece.index, cut and cut.log)
            self._calls.append(call)
        call.id, call.name = call.id or piece.id or "", call.name or piece.function.name or ""
        call.arguments += piece.function.arguments or ""
        call.pieces += 1

    def _half_call(self) -> Call | None:
        """The last call, if the engine may not have closed it: it came in pieces and nothing else came after it."""
        call = self._call
        if call is None or (call.pieces == 1 and is_json_object(call.arguments)):
            return None
        for event in reversed(self.recent):
            choice = _choice(event)
            if choice.delta.tool_calls:
                return call
            if _says(choice):
                return None
        return call if len(self.recent) != self.recent.maxlen else None


class _Cut(NamedTuple):
    log: bytes
    repeat: Said

    @classmethod
    def before(cls, call: Call) -> _Cut | None:
        return None if call.log is None else cls(call.log, NOTHING_SAID)


class CallFunction(msgspec.Struct, frozen=True, gc=False):
    """What of a call's function an event brings."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(msgspec.Struct, frozen=True, gc=False):
    """A piece of a tool call."""

    index: int = 0
    id: str | None = None
    function: CallFunction = CallFunction()


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What an event of a chat stream adds."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One choice of an event, of chat or of completions."""

    delta: Delta = Delta()
    text: str = ""


class _Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] = []


_decode = json.Decoder(_Chunk).decode


def has_text(event: bytes) -> bool:
    """Whether an event gives the client any output."""
    return _says(_choice(event))


def is_json_object(text: str) -> bool:
    """Whether it is one whole JSON object."""
    try:
        return isinstance(json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def reasoning_at(ids: bytes, facts: ReasoningFacts | None) -> Reasoning:
    """Where an answer stands after these ids."""
    if facts is None or not facts.end_ids:
        return Reasoning.NONE
    line = b"," + ids + b","
    ended, opened = line.rfind(_needle(facts.end_ids)), line.rfind(_needle(facts.start_ids))
    if ended >= 0 and ended > opened:
        return Reasoning.ENDED
    if opened >= 0:
        return Reasoning.INSIDE if facts.starts_inside else Reasoning.OPENED
    return Reasoning.INSIDE if facts.starts_inside else Reasoning.NONE


def _thought(ids: bytes, facts: ReasoningFacts | None) -> bytes:
    """The ids up to the end of the reasoning."""
    line = b"," + ids + b","
    end = _needle(facts.end_ids if facts else ())
    return line[1:line.rfind(end) + len(end) - 1]


def _count(ids: bytes) -> int:
    return ids.count(b",") + 1 if ids else 0


def _needle(ids: Sequence[int]) -> bytes:
    return b"," + b",".join(b"%d" % one for one in ids) + b"," if ids else b"-"


def _said(choice: Choice) -> Said | None:
    """An event's text; none if it brings something else."""
    delta = choice.delta
    said = Said(choice.text or delta.content or "", delta.reasoning_content or delta.reasoning or "")
    return said if not delta.tool_calls and any(said) else None


def _says(choice: Choice) -> bool:
    delta = choice.delta
    return bool(choice.text or delta.content or delta.reasoning_content or delta.reasoning or delta.refusal
                or delta.tool_calls)


def _choice(event: bytes) -> Choice:
    try:
        choices = _decode(sse.payload(event)).choices
    except msgspec.DecodeError:
        return Choice()
    return choices[0] if choices else Choice()


def _unescaped(raw: bytearray) -> str:
    try:
        return json.decode(b'"' + raw + b'"', type=str)
    except msgspec.DecodeError:
        return ""
