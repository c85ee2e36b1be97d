"""Which header a client's key is taken from."""

import pytest

from edge_api import errors
from edge_api.errors import Refusal
from edge_api.secret import secret_of


@pytest.mark.parametrize(("authorization", "api_key", "secret"), [
    (b"Bearer k", b"", b"k"), (b"bearer k", b"", b"k"), (b"BEARER  k ", b"", b"k"), (None, b"k", b"k"),
    (b"Bearer k", b"other", b"k"), (b"Bearer \xc3\xa9", b"", b"\xc3\xa9")])
def test_the_key_is_found(authorization: bytes | None, api_key: bytes, secret: bytes) -> None:
    assert secret_of(authorization, api_key) == secret


@pytest.mark.parametrize(("authorization", "api_key"), [
    (None, b""), (b"", b""), (b"Bearer", b""), (b"Bearer ", b""), (b"Basic k", b""), (b"k", b""), (b"Bearerk", b""),
    (b"Basic k", b"k"), (b"", b"k")])
def test_there_is_none(authorization: bytes | None, api_key: bytes) -> None:
    with pytest.raises(Refusal) as raised:
        secret_of(authorization, api_key)
    assert raised.value.fault is errors.INVALID_API_KEY
