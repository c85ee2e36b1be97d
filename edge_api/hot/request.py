"""A chat request, checked: what the edge must know of it, and the bytes that go upstream."""

import re

import msgspec
from msgspec import json

from edge_api import errors
from edge_api.errors import Refusal
from edge_api.hot.fields import NOTHING, ChatFields
from edge_api.hot.splice import Pieces, upstream_body

_decode_fields = json.Decoder(ChatFields).decode
_AT = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"^Object missing required field `(.+?)`")


class StreamOptions(msgspec.Struct):
    """What of a client's `stream_options` the edge acts on."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


_decode_options = json.Decoder(StreamOptions | None).decode


class ChatRequest(msgspec.Struct, frozen=True):
    """`wants_usage`: a usage event at the end of the stream; `wants_each_usage`: in every event as well.

    `pieces` are what goes upstream, `length` bytes in all.
    """

    fields: ChatFields
    streamed: bool
    wants_usage: bool
    wants_each_usage: bool
    pieces: Pieces
    length: int


def read(body: bytes) -> tuple[ChatFields, StreamOptions | None]:
    """What the edge reads of a body.

    Raises:
        Refusal: the body is no UTF-8 or no JSON, or a field that the edge reads has a wrong type.
    """
    try:
        if not body.isascii():
            body.decode()  # fields that stay raw are not looked at by the JSON decoder
        fields = _decode_fields(body)
    except UnicodeDecodeError as error:
        raise Refusal(errors.INVALID_JSON, f"the body is not UTF-8: byte {error.start} is wrong") from None
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error), "") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal(errors.INVALID_JSON, f"the body is not valid JSON: {error}") from None
    return fields, _options(fields)


def prepare(body: bytes, fields: ChatFields, options: StreamOptions | None, always_usage: bool,
            default_max_tokens: int | None) -> ChatRequest:
    """The request of a body that was read to `fields` and `options`, for a model with that default limit."""
    streamed, pieces = bool(fields.stream), upstream_body(body, fields, default_max_tokens)
    return ChatRequest(
        fields=fields,
        streamed=streamed,
        wants_usage=always_usage or bool(options and options.include_usage),
        wants_each_usage=bool(options and options.continuous_usage_stats),
        pieces=pieces,
        length=sum(map(len, pieces)),
    )


def check_limit(fields: ChatFields, max_output_tokens: int) -> None:
    """Refuses an answer longer than the model can give.

    Raises:
        Refusal: it names the field and the model's own limit.
    """
    for param, limit in (("max_tokens", fields.max_tokens), ("max_completion_tokens", fields.max_completion_tokens)):
        if isinstance(limit, int) and limit > max_output_tokens:
            raise Refusal(errors.INVALID_VALUE, f"'{param}' is {limit}; this model answers with at most "
                          f"{max_output_tokens} tokens", param)


def _options(fields: ChatFields) -> StreamOptions | None:
    if fields.stream_options is NOTHING:
        return None
    try:
        return _decode_options(fields.stream_options)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error), "stream_options") from None


def _wrong_field(message: str, parent: str) -> Refusal:
    """The refusal for a decoder's complaint, with the field's path as `param`."""
    missing, at = _MISSING.match(message), _AT.search(message)
    path = [parent, at[1] if at else "", missing[1] if missing else ""]
    param = ".".join(part for part in path if part) or None
    if missing:
        return Refusal(errors.MISSING_PARAMETER, f"missing required parameter: '{param}'", param)
    text = _AT.sub("", message).replace("`", "'")
    return Refusal(errors.INVALID_VALUE, f"invalid value for '{param or 'the body'}': {text}", param)
