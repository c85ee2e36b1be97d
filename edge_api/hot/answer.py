"""A unary answer: its usage found from the end, the engine's extras cut out, the cost put in."""

import re
from collections.abc import Sequence

import msgspec
from msgspec import json

from control_plane.contracts.pricing import Cost, Price
from control_plane.contracts.usage import MeterSource
from edge_api.hot.meter import FINISHED
from edge_api.hot.usage import UNKNOWN, Counts, cost_of, counts_of, read_usage, with_cost
from edge_api.tool_calls.verdict import Called

TOOL_CALLS = "tool_calls"
MAX_TAIL_BYTES = 16 * 1024  # longer ones are decoded: a pattern is slow on what was made to be slow
TAIL = re.compile(
    rb',\s*"usage":\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})(?:,\s*"nvext":\s*(?:null|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}))?\s*\}\s*\Z')
BEGINNING = re.compile(rb'\{\s*"id":\s*"[^"\\]*"').match
_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode


class BadAnswer(Exception):
    """A 200 whose body is no chat completion."""


class UnaryAnswer(msgspec.Struct, frozen=True, gc=False):
    """`body` is what goes to the client. `cost` is null if the answer held no usage. `calls` are an answer's that ended
    with tool calls."""

    body: bytes
    counts: Counts
    cost: Cost | None
    finish_reason: str
    calls: Sequence[Called] = ()


class _Function(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct, frozen=True, gc=False):
    function: _Function = _Function()


class _Message(msgspec.Struct, frozen=True, gc=False):
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, frozen=True, gc=False):
    message: _Message = _Message()


class _Called(msgspec.Struct, gc=False):
    choices: list[_Choice] = []


_decode_called = json.Decoder(_Called).decode
UNREADABLE = (Called("", ""),)


def read_answer(body: bytes, price: Price, name: bytes = b"") -> UnaryAnswer:
    """The client's form of an answer, with its counts. If it has an id, `name` is put in place of it.

    Raises:
        BadAnswer: it is no JSON object.
    """
    cut = body.rfind(b'"usage"')
    match = TAIL.match(body, body.rfind(b",", 0, cut)) if max(0, len(body) - MAX_TAIL_BYTES) < cut else None
    begins = BEGINNING(body)
    usage = read_usage(match[1]) if match is not None and begins is not None else None
    if match is None or begins is None or usage is None:
        return _rebuilt(body, price, name)
    counts = counts_of(usage, MeterSource.ENGINE)
    cost = cost_of(price, counts)
    start = b'{"id":"%b"' % name if name else begins[0]
    told = b'%b%b,"usage":%b}' % (start, body[begins.end():match.start()], with_cost(match[1], price, cost))
    return _answer(body, told, counts, cost)


def _rebuilt(body: bytes, price: Price, name: bytes) -> UnaryAnswer:
    try:
        fields = _decode_object(body)
    except msgspec.DecodeError:
        raise BadAnswer("the answer is not a JSON object") from None
    fields.pop("nvext", None)
    if name and "id" in fields:
        fields["id"] = msgspec.Raw(b'"%b"' % name)
    raw = fields.get("usage")
    usage = read_usage(raw) if raw is not None else None
    if raw is None or usage is None:
        return _answer(body, json.encode(fields), UNKNOWN, None)
    counts = counts_of(usage, MeterSource.ENGINE)
    cost = cost_of(price, counts)
    fields["usage"] = msgspec.Raw(with_cost(bytes(raw), price, cost))
    return _answer(body, json.encode(fields), counts, cost)


def _answer(body: bytes, told: bytes, counts: Counts, cost: Cost | None) -> UnaryAnswer:
    finish_reason = _finish_reason(body)
    return UnaryAnswer(told, counts, cost, finish_reason, _calls(body) if finish_reason == TOOL_CALLS else ())


def _calls(body: bytes) -> Sequence[Called]:
    """The calls of an answer; calls that no client could read count as one that nobody asked for."""
    try:
        choices = _decode_called(body).choices
    except (msgspec.DecodeError, RecursionError):
        return UNREADABLE
    return [Called(call.function.name or "", call.function.arguments or "")
            for choice in choices for call in choice.message.tool_calls or ()]


def _finish_reason(body: bytes) -> str:
    found = FINISHED.search(body, body.rfind(b'"finish_reason"'))
    return found[1].decode() if found else ""
