"""Reads requests whose unknown fields are refused: a field that is passed over would be a promise that is not kept."""

import re
from typing import TypeVar

from msgspec import json

from edge_api import errors
from edge_api.dialects.reading import read_as
from edge_api.errors import Refusal

MAX_NAME = 100
MAX_COMMAS = 300_000  # each value of a translated request becomes an object
MAX_PARTS = 10_000
MAX_TOOLS = 1_000
_UNKNOWN = re.compile(r"Object contains unknown field '(.*)'$", re.DOTALL)

Kind = TypeVar("Kind")


def read_strictly(decoder: json.Decoder[Kind], body: bytes) -> Kind:
    """A body as what `decoder` reads.

    Raises:
        Refusal: as `read_as`; it names a field that the decoder does not know.
    """
    try:
        return read_as(decoder, body, MAX_COMMAS)
    except Refusal as refused:
        unknown = _UNKNOWN.search(refused.message)
        if unknown is None:
            raise
        raise unsupported(unknown[1][:MAX_NAME], "extra inputs are not permitted") from None


def check_parts(count: int, param: str) -> None:
    """Refuses a conversation of more messages and parts than are translated before anybody else is served."""
    if count > MAX_PARTS:
        raise Refusal(errors.INVALID_VALUE, f"{param}: more than {MAX_PARTS} messages and parts of messages", param)


def unsupported(param: str, why: str) -> Refusal:
    """The refusal of a field that is not served."""
    return Refusal(errors.UNSUPPORTED_PARAMETER, f"{param}: {why}", param)


def missing(param: str) -> Refusal:
    """The refusal of a request that lacks a field."""
    return Refusal(errors.MISSING_PARAMETER, f"missing required parameter: '{param}'", param)
