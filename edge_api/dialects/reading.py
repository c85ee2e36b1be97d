"""Turns bodies into fields, and decoders' complaints into refusals that name the field."""

import re
from typing import Final, TypeVar

import msgspec
from msgspec import json

from edge_api import errors
from edge_api.errors import Refusal
from edge_api.hot.fields import NOTHING, Fields

LONG_BYTES: Final = 1 << 20
MAX_COMMAS: Final = 500_000
_AT = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"^Object missing required field `(.+?)`")

Kind = TypeVar("Kind")


class StreamOptions(msgspec.Struct):
    """What of a client's `stream_options` the edge acts on."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


_decode_options = json.Decoder(StreamOptions | None).decode


def read_as(decoder: json.Decoder[Kind], body: bytes, max_commas: int = MAX_COMMAS) -> Kind:
    """A body as what `decoder` reads. It has at most one more value than commas, so a long one with more of them than
    any prompt needs is not decoded: each value takes time, in which no other client is served, and 60 bytes.

    Raises:
        Refusal: it is no UTF-8 or no JSON, has too many values, or a field that is read has a wrong type.
    """
    if len(body) > LONG_BYTES and body.count(b",") > max_commas:
        raise Refusal(errors.PAYLOAD_TOO_LARGE, f"the body has more than {max_commas} commas")
    try:
        if not body.isascii():
            body.decode()  # fields that stay raw are not looked at by the JSON decoder
        return decoder.decode(body)
    except UnicodeDecodeError as error:
        raise Refusal(errors.INVALID_JSON, f"the body is not UTF-8: byte {error.start} is wrong") from None
    except msgspec.ValidationError as error:
        raise wrong_field(str(error), "") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal(errors.INVALID_JSON, f"the body is not valid JSON: {error}") from None


def stream_options(fields: Fields) -> StreamOptions | None:
    """The request's `stream_options`, null if it has none.

    Raises:
        Refusal: they are malformed.
    """
    if fields.stream_options is NOTHING:
        return None
    try:
        return _decode_options(fields.stream_options)
    except msgspec.ValidationError as error:
        raise wrong_field(str(error), "stream_options") from None


def wrong_field(message: str, parent: str) -> Refusal:
    """The refusal for a decoder's complaint, with the field's path as `param`."""
    missing, at = _MISSING.match(message), _AT.search(message)
    path = [parent, at[1] if at else "", missing[1] if missing else ""]
    param = ".".join(part for part in path if part) or None
    if missing:
        return Refusal(errors.MISSING_PARAMETER, f"missing required parameter: '{param}'", param)
    text = _AT.sub("", message).replace("`", "'")
    return Refusal(errors.INVALID_VALUE, f"invalid value for '{param or 'the body'}': {text}", param)
