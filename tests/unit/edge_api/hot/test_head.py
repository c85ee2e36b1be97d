"""The next request of a connection is known by the bytes of the last one's head, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_api.dialects.plain import CHAT
from edge_api.hot.head import MAX_KNOWN_BYTES, Head, KnownHead, known_head

LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
HEADERS = {b"host": b"edge", b"authorization": b"Bearer k", b"content-length": b"2", b"accept": b"*/*"}


def request(body: bytes = b"{}", length: int | None = None, **others: bytes) -> bytes:
    headers = HEADERS | {b"content-length": b"%d" % (len(body) if length is None else length)}
    headers |= {name.encode(): value for name, value in others.items()}
    return LINE + b"".join(b"%b: %b\r\n" % header for header in headers.items()) + b"\r\n" + body


def head(others: dict[bytes, bytes] | None = None, keep_alive: bool = True) -> Head:
    return Head(CHAT, HEADERS | (others or {}), keep_alive, chunked=True)


def known(data: bytes = request()) -> KnownHead:
    learned = known_head(data, head())
    assert learned is not None
    return learned


@given(st.binary(max_size=2_000))
def test_the_same_head_before_any_body_is_known(body: bytes) -> None:
    assert known().body(request(body)) == body


@given(st.binary(max_size=200))
def test_what_is_no_such_request_is_not_known(data: bytes) -> None:
    assert known().body(data) is None


@given(st.integers(0, len(request())), st.binary(min_size=1, max_size=1))
def test_a_head_of_which_one_byte_differs_is_not_known(at: int, byte: bytes) -> None:
    whole, end = request(), request().index(b"\r\n\r\n") + 4
    changed = whole[:at] + byte + whole[at + 1:]
    if at < end and changed != whole:
        assert known().body(changed) is None


@pytest.mark.parametrize("data", [
    request()[:-1], request() + b"{", request() + request(), request(length=3), request(b"{}{}", length=2),
    request().replace(b"length: 2", b"length: +2"), request().replace(b"length: 2", b"length: "),
    request().replace(b"length: 2", b"length: 2 "), request().replace(b"length: 2", b"length: 00000000002"),
    request().replace(b"length: 2", b"length: 2, 2"), request().replace(b"length: 2", b"length: 2\r\nx: y"),
    b"\r\n" + request()])
def test_what_is_not_one_whole_request_with_a_plain_length_goes_to_the_parser(data: bytes) -> None:
    assert known().body(data) is None


def test_a_length_that_is_the_last_header_is_found() -> None:
    data = LINE + b"Host: edge\r\nContent-Length:2\r\n\r\n{}"
    learned = known_head(data, head())
    assert learned is not None
    assert learned.body(data.replace(b":2\r\n\r\n{}", b":4\r\n\r\n[{}]")) == b"[{}]"


def test_the_length_of_one_request_is_not_taken_for_the_next_ones() -> None:
    assert b"content-length" not in known().head.headers


@pytest.mark.parametrize(("data", "told"), [
    (request(), head(keep_alive=False)),
    (request(), head({b"expect": b"100-continue"})),
    (request(), head({b"transfer-encoding": b"chunked"})),
    (request() + b"x", head()),
    (request(b"{}", length=1), head()),
    (LINE + b"\r\n", head()),
    (b"\r\n\r\n" + request(), head()),
    (request(long=b"x" * MAX_KNOWN_BYTES), head())])
def test_a_head_that_says_more_than_a_length_is_not_learned(data: bytes, told: Head) -> None:
    assert known_head(data, told) is None


@pytest.mark.parametrize(("value", "expects"), [(b"100-Continue", True), (b"tea", False)])
def test_a_client_may_wait_to_be_told_to_go_on(value: bytes, expects: bool) -> None:
    assert head({b"expect": value}).expects_continue is expects
