"""What goes upstream instead of the client's body: the same bytes, with the metering switches spliced in.

Two ways. Almost every request has none of the keys that the edge sets, so they are put behind the first brace and the
rest is sent as it came; so is the model's own limit of an answer's length, if the client names none. A request that
names one of them is taken apart at its top level only: values stay raw bytes, keys that the edge owns are replaced, and
no key appears twice.
"""

from collections.abc import Mapping

import msgspec
from msgspec import json

from edge_api.hot.fields import NOTHING, ChatFields

Pieces = list[bytes | memoryview]

METERED_OPTIONS: Mapping[str, msgspec.Raw] = {
    "include_usage": msgspec.Raw(b"true"),
    "continuous_usage_stats": msgspec.Raw(b"true"),
}
NVEXT = b'{"extra_fields":["completion_token_ids"]}'
SWITCHES = b'{"stream_options":{"include_usage":true,"continuous_usage_stats":true},"nvext":' + NVEXT + b","

_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode


def upstream_body(body: bytes, fields: ChatFields, default_max_tokens: int | None = None) -> Pieces:
    """The pieces to send. `body` decoded to `fields`, so it is an object with at least one key. `default_max_tokens` is
    the model's own limit for a client that names none."""
    limit = None if default_max_tokens is None or fields.has_limit else default_max_tokens
    is_stream = bool(fields.stream)
    if (fields.nvext is not NOTHING or fields.cache_salt is not NOTHING
            or (is_stream and fields.stream_options is not NOTHING) or (limit is not None and fields.has_null_limit)):
        return _rebuilt(body, is_stream, limit)
    if not is_stream and limit is None:
        return [body]
    added = (SWITCHES if is_stream else b"{") + (b'"max_tokens":%d,' % limit if limit is not None else b"")
    return [added, memoryview(body)[body.index(b"{") + 1:]]


def _rebuilt(body: bytes, stream: bool, limit: int | None) -> Pieces:
    values = _decode_object(body)
    values.pop("nvext", None)
    values.pop("cache_salt", None)
    if limit is not None:
        values.pop("max_completion_tokens", None)
        values["max_tokens"] = msgspec.Raw(b"%d" % limit)
    if stream:
        values["stream_options"] = msgspec.Raw(_metered_options(values.get("stream_options")))
        values["nvext"] = msgspec.Raw(NVEXT)
    return _joined(values)


def _metered_options(asked: msgspec.Raw | None) -> bytes:
    """The client's own stream options, those that the edge does not know included, with the metering ones on."""
    options = {} if asked is None or bytes(asked) == b"null" else _decode_object(asked)
    return b"".join(_joined({**options, **METERED_OPTIONS}))


def _joined(values: Mapping[str, msgspec.Raw]) -> Pieces:
    pieces: Pieces = []
    lead = b"{"
    for key, value in values.items():
        pieces += (lead + json.encode(key) + b":", memoryview(value))
        lead = b","
    pieces.append(b"}")
    return pieces
