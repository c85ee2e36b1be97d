"""A unary answer: its usage found from the end, the engine's extras cut out, the cost put in."""

import re

import msgspec
from msgspec import json

from control_plane.contracts.pricing import Cost, Price
from control_plane.contracts.usage import MeterSource
from edge_api.hot.meter import FINISHED
from edge_api.hot.usage import UNKNOWN, Counts, cost_of, counts_of, read_usage, with_cost

TAIL = re.compile(
    rb',\s*"usage":\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})(?:,\s*"nvext":\s*(?:null|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}))?\s*\}\s*\Z')
_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode


class BadAnswer(Exception):
    """A 200 whose body is no chat completion."""


class UnaryAnswer(msgspec.Struct, frozen=True, gc=False):
    """`body` is what goes to the client. `cost` is null if the answer held no usage."""

    body: bytes
    counts: Counts
    cost: Cost | None
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
    counts = counts_of(usage, MeterSource.ENGINE)
    cost = cost_of(price, counts)
    return UnaryAnswer(b'%b,"usage":%b}' % (body[:match.start()], with_cost(match[1], price, cost)), counts, cost,
                       _finish_reason(body))


def _rebuilt(body: bytes, price: Price) -> UnaryAnswer:
    try:
        fields = _decode_object(body)
    except msgspec.DecodeError:
        raise BadAnswer("the answer is not a JSON object") from None
    fields.pop("nvext", None)
    raw = fields.get("usage")
    usage = read_usage(raw) if raw is not None else None
    if raw is None or usage is None:
        return UnaryAnswer(json.encode(fields), UNKNOWN, None, _finish_reason(body))
    counts = counts_of(usage, MeterSource.ENGINE)
    cost = cost_of(price, counts)
    fields["usage"] = msgspec.Raw(with_cost(bytes(raw), price, cost))
    return UnaryAnswer(json.encode(fields), counts, cost, _finish_reason(body))


def _finish_reason(body: bytes) -> str:
    found = FINISHED.search(body, body.rfind(b'"finish_reason"'))
    return found[1].decode() if found else ""
