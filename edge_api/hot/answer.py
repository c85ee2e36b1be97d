"""A unary answer: its usage found from the end, the engine's extras cut out, the cost put in."""

import re
from dataclasses import dataclass

import msgspec
from msgspec import json

from control_plane.contracts.pricing import Price
from control_plane.contracts.usage import MeterSource
from edge_api.hot.meter import FINISHED
from edge_api.hot.usage import UNKNOWN, Counts, EngineUsage, cost_of, counts_of, read_usage, with_cost

TAIL = re.compile(
    rb',\s*"usage":\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})(?:,\s*"nvext":\s*(?:null|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}))?\s*\}\s*\Z')
_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode


class BadAnswer(Exception):
    """A 200 whose body is no chat completion."""


@dataclass(frozen=True, slots=True)
class UnaryAnswer:
    """`body` is what goes to the client."""

    body: bytes
    counts: Counts
    finish_reason: str


def read_answer(body: bytes, price: Price) -> UnaryAnswer:
    """The client's form of an answer, with its counts.

    Raises:
        BadAnswer: it is no JSON object.
    """
    cut = body.rfind(b'"usage"')
    match = TAIL.match(body, body.rfind(b",", 0, cut)) if cut > 0 else None
    if match is None or not body.startswith(b"{"):
        return _rebuilt(body, price)
    usage = read_usage(match[1])
    if usage is None:
        return _rebuilt(body, price)
    priced, counts = _priced(match[1], usage, price)
    return UnaryAnswer(body[:match.start()] + b',"usage":' + priced + b"}", counts, _finish_reason(body))


def _rebuilt(body: bytes, price: Price) -> UnaryAnswer:
    try:
        fields = _decode_object(body)
    except msgspec.DecodeError:
        raise BadAnswer("the answer is not a JSON object") from None
    fields.pop("nvext", None)
    raw = fields.get("usage")
    usage = read_usage(raw) if raw is not None else None
    counts = UNKNOWN
    if raw is not None and usage is not None:
        priced, counts = _priced(bytes(raw), usage, price)
        fields["usage"] = msgspec.Raw(priced)
    return UnaryAnswer(json.encode(fields), counts, _finish_reason(body))


def _priced(raw: bytes, usage: EngineUsage, price: Price) -> tuple[bytes, Counts]:
    counts = counts_of(usage, MeterSource.ENGINE)
    return with_cost(raw, price, cost_of(price, counts)), counts


def _finish_reason(body: bytes) -> str:
    found = FINISHED.search(body, body.rfind(b'"finish_reason"'))
    return found[1].decode() if found else ""
