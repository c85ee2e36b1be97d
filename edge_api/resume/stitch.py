"""Makes the events of a continuation those of the stream that it continues, before anything else reads them.

One id, one `created`, one model; no second role; tool calls counted on; usage of the whole. What comes out looks as if
the first datacenter had sent it, token ids included, so metering, journalling and a further break need to know nothing
of the seam.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import json

from control_plane.contracts.deployment import ReasoningFacts
from edge_api.hot import sse
from edge_api.resume import arguments
from edge_api.resume.journal import Reasoning, Said, Seam

Values = dict[str, msgspec.Raw]

IDENTITY = ("id", "created", "model", "system_fingerprint")
LAST_KEYS = ("usage", "nvext")
NULL = msgspec.Raw(b"null")
DONE_EVENT = b"data: [DONE]\n\n"

_decode_object = json.Decoder(Values).decode
_decode_objects = json.Decoder(list[Values]).decode
_decode_text = json.Decoder(str | None).decode
_decode_index = json.Decoder(int).decode
_decode_usage = json.Decoder(dict[str, Any]).decode


class BadContinuation(Exception):
    """The other datacenter does not go on with this answer: what it says does not fit what the client has."""


class _Ids(msgspec.Struct, gc=False):
    completion_token_ids: list[int] | None = None


_decode_ids = json.Decoder(_Ids).decode


class _Thought:
    """Counts the tokens of a thought that was not over at the seam, its end mark included."""

    __slots__ = ("_end_ids", "_last", "tokens")

    def __init__(self, tokens: int, end_ids: list[int]) -> None:
        self.tokens, self._end_ids = tokens, end_ids
        self._last: list[int] = []

    def take(self, ids: Iterable[int]) -> None:
        for one in ids:
            if self._last == self._end_ids:
                return
            self.tokens += 1
            self._last = [*self._last, one][-len(self._end_ids):]


class Stitch:
    """One continuation. `first` is any event of the stream as it was, `usage` the newest that it told (bytes of JSON,
    empty if none). `schemas` are those that calls must fit, by tool; `reasoning` is how the engine marks it."""

    __slots__ = ("_call_tail", "_identity", "_repeat", "_schemas", "_seam", "_thought", "_usage")

    def __init__(self, first: bytes, usage: bytes, seam: Seam, schemas: Mapping[str, Any] | None = None,
                 reasoning: ReasoningFacts | None = None) -> None:
        known = _read(first)
        self._identity = {name: known[name] for name in IDENTITY if name in known}
        self._usage: dict[str, Any] = _decode_usage(usage) if usage else {}
        self._seam, self._schemas = seam, schemas or {}
        self._repeat = seam.repeat
        self._thought = _Thought(seam.tokens, reasoning.end_ids) if seam.is_thinking and reasoning else None
        self._call_tail = seam.half_call.arguments if seam.half_call else ""

    def take(self, event: bytes) -> bytes:
        """An event of the continuation, as an event of the stream. Maybe nothing.

        Raises:
            BadContinuation: it does not fit.
        """
        data = sse.payload(event)
        if not data.startswith(b"{"):
            return event  # a comment, an annotation, [DONE]
        values = _read(event)
        if "choices" not in values:
            return event  # an error
        try:
            return self._rewritten(values)
        except msgspec.DecodeError as error:
            raise BadContinuation("an event of the continuation is none") from error

    def _rewritten(self, values: Values) -> bytes:
        choices = _decode_objects(values["choices"])
        says = [self._choice(choice) for choice in choices]
        values["choices"] = _raw(choices)
        last = {name: values.pop(name) for name in LAST_KEYS if name in values}
        if choices and not any(says) and "nvext" not in last:
            return b""  # it gave nothing but the role
        if self._thought is not None and "nvext" in last:
            self._thought.take(_decode_ids(last["nvext"]).completion_token_ids or ())
        usage = last.get("usage")
        if usage is not None and bytes(usage) != b"null":
            last["usage"] = self._whole_usage(usage)
        known = self._identity
        kept = {name: value for name, value in values.items() if name not in IDENTITY or name in known}
        return b"data: " + json.encode(kept | known | last) + sse.EVENT_END

    def _choice(self, choice: Values) -> bool:
        """Rewrites a choice in place, and says whether it gives the client anything."""
        said = False
        if "text" in choice:
            choice["text"] = self._heard_content(choice["text"])
            said = bytes(choice["text"]) != b'""'
        if "delta" in choice:
            delta = _decode_object(choice["delta"])
            said = self._delta(delta)
            choice["delta"] = _raw(delta)
        finish = choice.get("finish_reason", NULL)
        if bytes(finish) == b"null":
            return said
        if any(self._repeat) or self._call_tail:
            raise BadContinuation("the continuation ended before it had said what the client has")
        if bytes(finish) == b'"stop"' and self._seam.calls:
            choice["finish_reason"] = msgspec.Raw(b'"tool_calls"')
        return True

    def _delta(self, delta: Values) -> bool:
        delta.pop("role", None)
        if "content" in delta:
            delta["content"] = self._heard_content(delta["content"])
        for name in ("reasoning_content", "reasoning"):
            if name in delta:
                delta[name] = self._heard_reasoning(delta[name])
        if "tool_calls" in delta and bytes(delta["tool_calls"]) != b"null":
            calls = [call for call in _decode_objects(delta.pop("tool_calls")) if self._call(call)]
            if calls:
                delta["tool_calls"] = _raw(calls)
        return any(bytes(value) not in (b"null", b'""') for value in delta.values())

    def _heard_content(self, raw: msgspec.Raw) -> msgspec.Raw:
        repeat = self._repeat
        if not repeat.content:
            return raw
        new, left = unheard(_decode_text(raw) or "", repeat.content)
        self._repeat = Said(left, repeat.reasoning)
        return _raw(new)

    def _heard_reasoning(self, raw: msgspec.Raw) -> msgspec.Raw:
        repeat = self._repeat
        if not repeat.reasoning:
            return raw
        new, left = unheard(_decode_text(raw) or "", repeat.reasoning)
        self._repeat = Said(repeat.content, left)
        return _raw(new)

    def _call(self, call: Values) -> bool:
        """Rewrites a piece of a tool call in place. False: the client has all of it."""
        index = _decode_index(call.get("index", msgspec.Raw(b"0")))
        call["index"] = msgspec.Raw(b"%d" % (index + self._seam.calls))
        function = _decode_object(call["function"]) if "function" in call else {}
        name, said = _text(function, "name"), _text(function, "arguments")
        if name in self._schemas and not arguments.fits(self._schemas[name], said):
            raise BadContinuation("a tool call of the continuation does not fit its schema")
        if index or self._seam.half_call is None:
            return True
        if name and name != self._seam.half_call.name:
            raise BadContinuation("the continuation calls another tool than the client was told")
        new, self._call_tail = unheard(said, self._call_tail)
        for known in ("id", "type"):
            call.pop(known, None)
        call["function"] = _raw({"arguments": new})
        return bool(new)

    def _whole_usage(self, raw: msgspec.Raw) -> msgspec.Raw:
        """The usage of the stream from its beginning: its prompt once, all that the client has and gets."""
        seam, first = self._seam, self._usage
        usage = _decode_usage(raw)
        if not seam.had_text:
            return raw
        prompt = first.get("prompt_tokens", max(usage.get("prompt_tokens", 0) - seam.tokens, 0))
        completion = seam.tokens + usage.get("completion_tokens", 0)
        usage |= {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
                  "prompt_tokens_details": first.get("prompt_tokens_details")}
        reasoning = self._reasoning_tokens(_reasoning_tokens(usage))
        if reasoning:
            usage["completion_tokens_details"] = {
                **(usage.get("completion_tokens_details") or {}), "reasoning_tokens": reasoning}
        return _raw(usage)

    def _reasoning_tokens(self, told: int) -> int:
        """Where ids tell, they count: what the engine told before the seam may hold what was given up, and what it
        tells behind it leaves out the first ones without text."""
        seam = self._seam
        if self._thought is not None:
            return self._thought.tokens
        is_known = seam.reasoning_tokens or seam.reasoning is not Reasoning.NONE
        return told + (seam.reasoning_tokens if is_known else min(_reasoning_tokens(self._usage), seam.tokens))


def closing(first: bytes, usage: bytes, tokens: int) -> bytes:
    """The events that end a stream whose token limit was reached when it broke: nothing is left to generate."""
    known = _read(first)
    head = {name: value for name, value in known.items() if name not in ("choices", *LAST_KEYS)}
    told = json.decode(known.get("choices", b"[]"), type=list[Values])
    empty: dict[str, Any] = {"text": ""} if told and "text" in told[0] else {"delta": {}}
    events: list[dict[str, Any]] = [{**head, "choices": [{"index": 0, **empty, "finish_reason": "length"}]}]
    if usage:
        counts = _decode_usage(usage)
        total = counts.get("prompt_tokens", 0) + tokens
        events.append({**head, "choices": [], "usage": counts | {"completion_tokens": tokens, "total_tokens": total}})
    return b"".join(b"data: " + json.encode(event) + sse.EVENT_END for event in events) + DONE_EVENT


def unheard(said: str, heard: str) -> tuple[str, str]:
    """What of `said` is new to a client that has `heard`, and what of that must still come.

    Raises:
        BadContinuation: it is neither.
    """
    if said.startswith(heard):
        return said[len(heard):], ""
    if heard.startswith(said):
        return "", heard[len(said):]
    raise BadContinuation("the continuation says something else than the client has")


def _reasoning_tokens(usage: Mapping[str, Any]) -> int:
    return int((usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0)


def _text(values: Values, name: str) -> str:
    return (_decode_text(values[name]) if name in values else "") or ""


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.encode(value))


def _read(event: bytes) -> Values:
    try:
        return _decode_object(sse.payload(event))
    except msgspec.DecodeError:
        return {}
