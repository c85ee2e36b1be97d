"""Reads a chat stream as it passes: counts token ids, keeps the newest usage, and says what of each event goes on.

Dynamo writes `usage` and then `nvext` as the last keys of a chunk, so two searches from the end cut both without
parsing the chunk. In valid JSON the bytes `,"usage":` are always a key, for a quote inside a string is escaped; and
what follows is looked at up to the chunk's last brace, so it is the chunk's own key and not one further in. Nearly all
events have token ids at their end; others are matched, and what is not shaped like that is decoded at its top level and
put together again.
"""

import re

import msgspec
from msgspec import json

from control_plane.contracts.pricing import Price
from control_plane.contracts.usage import MeterSource
from edge_api.dialects.base import ChunkHead
from edge_api.hot import sse
from edge_api.hot.usage import NOTHING_DELIVERED, UNKNOWN, Counts, cost_of, counts_of, read_usage, with_cost
from edge_api.resume.journal import NO_IDS, SEGMENT_END, Journal, Watch

USAGE = b',"usage":'
NVEXT = b',"nvext":'
MAX_TAIL_BYTES = 64 * 1024  # longer ones are decoded: a pattern is slow on what was made to be slow
TAIL = re.compile(
    rb'(?:,"usage":(null|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}))?(?:,"nvext":\{"completion_token_ids":\[([0-9,]*\])\})?\}\n\n\Z')
IDS, IDS_END = b',"nvext":{"completion_token_ids":[', b"]}}\n\n"
IDS_LENGTH, USAGE_LENGTH = len(IDS), len(USAGE)
BEGINNING = re.compile(rb'data: \{"id":"[^"\\]*"').match
UNHEARD = b"\0"  # no event begins so
DIGITS = b"0123456789,"
# What a usage object holds beside its braces, and what it may look like without all that: one object, whole.
PLAIN = b'0123456789abcdefghijklmnopqrstuvwxyz_":,. '
OPENING, CLOSING = b"{}"
SHAPES = frozenset({b"{}", b"{{}}", b"{{}{}}", b"{{}{}{}}"})
FINISHED = re.compile(rb'"finish_reason":\s*"([a-z_]+)"')
DONE = b"[DONE]"


class ExtraFields(msgspec.Struct, gc=False):
    """`nvext` of a chunk."""

    completion_token_ids: list[int] | None = None


class UpstreamError(msgspec.Struct, gc=False):
    """An error inside a stream."""

    message: str = ""
    code: int | str | None = None


_decode_head = json.Decoder(ChunkHead).decode
_decode_extra = json.Decoder(ExtraFields | None).decode
_decode_error = json.Decoder(UpstreamError | str).decode
_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode


class StreamMeter:
    """One stream's meter. `journal` holds the ids of the events that were passed on, and `usage` is the newest that
    came; `error` is why the stream broke, if so, and `is_cut` whether that is this edge's finding and not the
    datacenter's word. What goes on has `name` for its id, whatever the datacenter calls it; none: the datacenter's."""

    __slots__ = ("_known", "_log", "_name", "_named", "_note", "_price", "_sought", "_wants_each",
                 "_wants_last", "_watch", "error", "has_final_usage", "is_cut", "is_over", "journal", "usage")

    def __init__(self, price: Price, wants_usage: bool, wants_each_usage: bool, watch: Watch = Watch.NOTHING,
                 name: bytes = b"") -> None:
        self._price, self._name = price, name
        self._known, self._named = UNHEARD if name else b"", b""
        self._wants_last, self._wants_each = wants_usage, wants_each_usage
        self.journal = journal = Journal(watch)
        self._log, self._note = journal.log, journal.recent.append
        self._sought, self._watch = journal.sought, journal.watch
        self.usage = b""
        self.has_final_usage = False
        self.is_over = self.is_cut = False
        self.error: UpstreamError | None = None

    def pass_on(self, event: bytes) -> bytes:
        """What of an event goes to the client, maybe nothing. `is_over`: it was the last one."""
        end = event.rfind(IDS)
        if end < 0 or not event.endswith(IDS_END):
            return self._renamed(self._matched(event))
        ids, cut = event[end + IDS_LENGTH:-4], event.rfind(USAGE, 0, end)
        if ids.translate(None, DIGITS) != SEGMENT_END:
            return self._renamed(self._matched(event))
        if cut < 0:
            if event.rfind(b'"usage"') >= 0:
                return self._renamed(self._rebuilt(event))  # it is somewhere else in the chunk
            cut = end
        else:
            usage = event[cut + USAGE_LENGTH:end]
            if usage[0] == OPENING and usage[-1] == CLOSING and usage.translate(None, PLAIN) in SHAPES:
                self.usage = usage
                if self._wants_each:
                    cut = end
            elif usage != b"null":
                return self._renamed(self._matched(event))
        if self._sought is not None and self._sought in event:
            self._watch(event)
        if ids != NO_IDS:
            self._log += ids
        self._note(event)
        known = self._known
        if event.startswith(known):
            return self._named + event[len(known):cut] + b"}\n\n"
        return self._renamed(event[:cut] + b"}\n\n")

    def _renamed(self, out: bytes) -> bytes:
        """What goes on of an event, under the answer's own name. How the datacenter's chunks begin is learned from the
        first."""
        known = self._known
        if out.startswith(known):
            return self._named + out[len(known):]
        found = BEGINNING(out)
        if found:
            self._known, self._named = found[0], b'data: {"id":"%b"' % self._name
            return self._named + out[found.end():]
        data = sse.payload(out)
        if not data.startswith(b"{"):
            return out
        try:
            fields = _decode_object(data)
        except msgspec.DecodeError:
            return out
        return b"data: " + json.encode(fields | {"id": msgspec.Raw(b'"%b"' % self._name)}) + sse.EVENT_END

    def _matched(self, event: bytes) -> bytes:
        """An event that may end otherwise than nearly all do."""
        cut = event.rfind(USAGE)
        if cut < 0:
            cut = event.rfind(NVEXT)
        match = TAIL.match(event, cut) if max(0, len(event) - MAX_TAIL_BYTES) < cut else None
        if match is None:
            return self._other(event)
        usage, ids = match.groups()
        if (usage is None and b'"usage"' in event) or (ids is None and b'"nvext"' in event):
            return self._rebuilt(event)  # the other one of the two is somewhere else in the chunk
        if ids is None and b'"choices":[]' in event:
            return self._final_usage(event, cut, usage)
        if self._sought is not None and self._sought in event:
            self._watch(event)
        if ids is not None and ids != NO_IDS:
            self._log += ids
        self._note(event)
        if usage is not None and usage != b"null":
            self.usage = usage
            if self._wants_each:
                return event if ids is None else event[:match.end(1)] + b"}\n\n"
        return event[:cut] + b"}\n\n"

    @property
    def has_begun(self) -> bool:
        """Whether a chunk has passed."""
        return bool(self.journal.last)

    def fail(self, message: str) -> None:
        """The stream is broken, whatever else comes."""
        self.error = UpstreamError(message)
        self.is_over = self.is_cut = True

    def go_on(self) -> None:
        """Another datacenter takes the stream over: what broke it is forgotten, what was counted stays."""
        self.error = None
        self.is_over = self.is_cut = False

    def closing_usage(self) -> bytes:
        """The usage event for a client that asked and whose datacenter sent none of its own."""
        if not self._wants_last or self.has_final_usage or not self.usage:
            return b""
        self.has_final_usage = True
        head = self.head()
        start = json.encode({"id": head.id, "object": head.object, "created": head.created,
                             "model": head.model, "choices": []})
        return b"data: " + start[:-1] + USAGE + self._priced(self.usage) + b"}\n\n"

    def head(self) -> ChunkHead:
        """Identity of the stream's chunks, from the last one that passed."""
        try:
            head = _decode_head(sse.payload(self.journal.last))
        except msgspec.DecodeError:
            head = ChunkHead()
        head.id = self._name.decode() or head.id
        return head

    def finish_reason(self) -> str:
        """The last finish reason that passed, empty if the stream is not finished."""
        found = FINISHED.search(self.journal.last)
        return found[1].decode() if found else ""

    def complete_counts(self) -> Counts:
        """What a stream that came to its end used: the engine's figure wins, wherever it rode."""
        usage = read_usage(self.usage) if self.usage else None
        if usage is None:
            return Counts(0, 0, self.journal.tokens, 0, MeterSource.PROVISIONAL)
        return counts_of(usage, MeterSource.ENGINE)

    def partial_counts(self) -> Counts:
        """What a stream that broke off had delivered: our own count of ids, and the prompt as the engine told it."""
        return self._counts(self.journal.tokens)

    def lost_counts(self) -> Counts:
        """As `partial_counts`, for a stream that the datacenter broke: without output there is no charge, nor for
        tokens whose text was still held back."""
        counts = self._counts(self.journal.committed_tokens if self.journal.tokens else 0)
        return counts if counts.completion else NOTHING_DELIVERED

    def _counts(self, delivered: int) -> Counts:
        usage = read_usage(self.usage) if self.usage else None
        if usage is None:
            return UNKNOWN
        return counts_of(usage, MeterSource.TOKEN_IDS, delivered if self.journal.tokens else usage.completion_tokens)

    def _final_usage(self, event: bytes, cut: int, usage: bytes) -> bytes:
        if usage != b"null":
            self.usage = usage
        if not self._wants_last or usage == b"null":
            return b""
        self.has_final_usage = True
        return event[:cut] + USAGE + self._priced(usage) + b"}\n\n"

    def _priced(self, usage: bytes) -> bytes:
        read = read_usage(usage)
        if read is None:
            return usage
        return with_cost(usage, self._price, cost_of(self._price, counts_of(read, MeterSource.ENGINE)))

    def _other(self, event: bytes) -> bytes:
        """An event without usage and ids where they are expected."""
        if event.startswith(b":") and b"\ndata:" not in event:
            return event
        data = sse.payload(event)
        if data == DONE:
            self.is_over = True
            return b""
        if sse.event_name(event) == b"error":
            return self._failed(data or event)
        if not data:
            return b""  # an annotation of the engine's own, without data
        if b'"error"' in data or b'"usage"' in data or b'"nvext"' in data:
            return self._rebuilt(event)
        self._keep(event)
        return event

    def _keep(self, event: bytes) -> None:
        if self._sought is not None and self._sought in event:
            self._watch(event)
        self._note(event)

    def _rebuilt(self, event: bytes) -> bytes:
        """The slow way: the chunk's top level taken apart, and what is ours taken out."""
        try:
            fields = _decode_object(sse.payload(event))
        except msgspec.DecodeError:
            return event
        error = fields.get("error")
        if error is not None and bytes(error) != b"null":
            return self._failed(bytes(error))
        is_last = bytes(fields.get("choices", b"")) == b"[]"
        if not is_last:
            self._keep(event)
        self._count_extra(fields.pop("nvext", None))
        usage = fields.pop("usage", None)
        raw = b"" if usage is None or bytes(usage) == b"null" else bytes(usage)
        if raw:
            self.usage = raw
        if is_last and not self._wants_last:
            return b""
        if raw and is_last:
            self.has_final_usage = True
            fields["usage"] = msgspec.Raw(self._priced(raw))
        elif raw and self._wants_each:
            fields["usage"] = msgspec.Raw(raw)
        rebuilt = b"data: " + json.encode(fields) + sse.EVENT_END
        return rebuilt

    def _count_extra(self, raw: msgspec.Raw | None) -> None:
        if raw is None:
            return
        try:
            extra = _decode_extra(raw)
        except msgspec.DecodeError:
            return
        if extra is not None and extra.completion_token_ids:
            self.journal.note_ids(extra.completion_token_ids)

    def _failed(self, raw: bytes) -> bytes:
        try:
            error = _decode_error(raw)
        except msgspec.DecodeError:
            error = UpstreamError()
        self.error, self.is_over = UpstreamError(error) if isinstance(error, str) else error, True
        return b""
