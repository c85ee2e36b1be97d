"""What goes upstream instead of the request's body: the same bytes, with the metering switches spliced in.

Two ways. Almost every request has none of the keys that the edge owns, so what it needs is put behind the first brace
and the rest is sent as it came; so is the model's own limit of an answer's length, if the client names none. A request
that names one of them is taken apart at its top level only: values stay raw bytes, keys that the edge owns are
replaced, and no key appears twice.
"""

from collections.abc import Mapping

import msgspec
from msgspec import json

from edge_api import errors
from edge_api.dialects.base import Asked, Upstream
from edge_api.errors import Refusal
from edge_api.hot.fields import NOTHING, Fields

MAX_KEYS = 1_000
Pieces = list[bytes | memoryview]

METERED_OPTIONS: Mapping[str, msgspec.Raw] = {
    "include_usage": msgspec.Raw(b"true"),
    "continuous_usage_stats": msgspec.Raw(b"true"),
}
NVEXT = b'{"extra_fields":["completion_token_ids"]}'
SWITCHES = b'{"stream_options":{"include_usage":true,"continuous_usage_stats":true},"nvext":' + NVEXT + b","
# What is between a client and the edge, and what the edge alone may say to an engine.
OWNED = ("nvext", "cache_salt", "provider", "service_tier", "session_id", "prompt_cache_key", "prompt_cache_retention",
         "safety_identifier", "usage")

_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode


def upstream_body(asked: Asked, default_max_tokens: int | None = None) -> Pieces:
    """The pieces to send. The body is an object with at least one key, for its fields were decoded from it.
    `default_max_tokens` is the model's own limit for a client that names none."""
    fields, body = asked.fields, asked.body
    limit = default_max_tokens if fields.limit is None and asked.upstream is not Upstream.EMBEDDINGS else None
    if _has_owned(fields) or (asked.streamed and fields.stream_options is not NOTHING) or (
            limit is not None and fields.has_null_limit):
        return _rebuilt(body, asked.streamed, limit)
    if not asked.streamed and limit is None:
        return [b"{", memoryview(body)[body.index(b"{") + 1:]]
    added = (SWITCHES if asked.streamed else b"{") + (b'"max_tokens":%d,' % limit if limit is not None else b"")
    return [added, memoryview(body)[body.index(b"{") + 1:]]


def salted(pieces: Pieces, salt: str) -> Pieces:
    """The same with a cache salt. `pieces` begin with the object's brace."""
    return [b'{"cache_salt":%b,%b' % (json.encode(salt), bytes(pieces[0][1:])), *pieces[1:]]


def _has_owned(fields: Fields) -> bool:
    return (fields.nvext is not NOTHING or fields.cache_salt is not NOTHING or fields.provider is not NOTHING
            or fields.service_tier is not None or fields.session_id is not None
            or fields.prompt_cache_key is not None or fields.prompt_cache_retention is not None
            or fields.safety_identifier is not None or fields.usage is not NOTHING)


def _rebuilt(body: bytes, stream: bool, limit: int | None) -> Pieces:
    values = _object(body)
    for name in OWNED:
        values.pop(name, None)
    if limit is not None:
        values.pop("max_completion_tokens", None)
        values["max_tokens"] = msgspec.Raw(b"%d" % limit)
    if stream:
        values["stream_options"] = msgspec.Raw(_metered_options(values.get("stream_options")))
        values["nvext"] = msgspec.Raw(NVEXT)
    return _joined(values)


def _metered_options(asked: msgspec.Raw | None) -> bytes:
    """The client's own stream options, those that the edge does not know included, with the metering ones on."""
    options = {} if asked is None or bytes(asked) == b"null" else _object(asked)
    return b"".join(_joined({**options, **METERED_OPTIONS}))


def _object(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """An object's values.

    Raises:
        Refusal: they are more than any request has, and would take time in which nobody else is served.
    """
    values = _decode_object(raw)
    if len(values) > MAX_KEYS:
        raise Refusal(errors.INVALID_VALUE, f"an object of the request has more than {MAX_KEYS} fields")
    return values


def _joined(values: Mapping[str, msgspec.Raw]) -> Pieces:
    pieces: Pieces = [b"{"]
    lead = b""
    for key, value in values.items():
        pieces += (lead + json.encode(key) + b":", memoryview(value))
        lead = b","
    pieces.append(b"}")
    return pieces
