"""Unknown fields are refused by name."""

import msgspec
import pytest
from msgspec import json

from edge_api import errors
from edge_api.dialects.strict import missing, read_strictly, unsupported
from edge_api.errors import Refusal


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """A request with one field."""

    name: str


DECODER = json.Decoder(Wanted)


def refused(body: bytes) -> Refusal:
    with pytest.raises(Refusal) as raised:
        read_strictly(DECODER, body)
    return raised.value


def test_what_is_known_is_read() -> None:
    assert read_strictly(DECODER, b'{"name":"x"}') == Wanted("x")


@pytest.mark.parametrize("name", ["foo", "a b", "é", "it's", "top.level", "`", "a\nb"])
def test_a_field_that_is_not_known_is_named(name: str) -> None:
    refusal = refused(json.encode({"name": "x", name: 1}))
    assert (refusal.fault, refusal.param) == (errors.UNSUPPORTED_PARAMETER, name.replace("`", "'"))
    assert refusal.message == f"{refusal.param}: extra inputs are not permitted"


def test_a_long_name_is_not_said_again_whole() -> None:
    assert len(refused(json.encode({"name": "x", "y" * 10_000: 1})).message) < 200


def test_other_complaints_are_left_as_they_are() -> None:
    assert refused(b"{}").fault is errors.MISSING_PARAMETER
    assert refused(b'{"name":1}').fault is errors.INVALID_VALUE
    assert refused(b"{").fault is errors.INVALID_JSON


def test_a_value_that_speaks_of_unknown_fields_is_no_unknown_field() -> None:
    assert read_strictly(DECODER, b'{"name":"Object contains unknown field `x`"}').name.endswith("`x`")


def test_refusals_name_their_field() -> None:
    for refusal in unsupported("a.b", "why"), missing("a.b"):
        assert refusal.param == "a.b"
        assert "a.b" in refusal.message
        assert refusal.status == 400
