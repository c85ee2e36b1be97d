"""The next message of a connection is known by the bytes of the last one's head, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_api.known_head import MAX_KNOWN_BYTES, KnownHead, known_head

HEAD = b"POST / HTTP/1.1\r\nhost: edge\r\nContent-Length: %d\r\nauthorization: Bearer k\r\n%b\r\n"


def message(body: bytes = b"{}", length: int | None = None, more: bytes = b"") -> bytes:
    return HEAD % (len(body) if length is None else length, more) + body


WHOLE = message()


def known(data: bytes = WHOLE) -> KnownHead[str]:
    learned = known_head(data, "told")
    assert learned is not None
    assert learned.told == "told"
    return learned


@given(st.binary(max_size=2_000))
def test_the_same_head_before_any_body_is_known(body: bytes) -> None:
    assert known().body(message(body)) == body


@given(st.binary(max_size=200))
def test_what_is_no_such_message_is_not_known(data: bytes) -> None:
    assert known().body(data) is None


@given(st.integers(0, WHOLE.index(b"\r\n\r\n") + 3), st.binary(min_size=1, max_size=1))
def test_a_head_of_which_one_byte_differs_is_not_known(at: int, byte: bytes) -> None:
    changed = WHOLE[:at] + byte + WHOLE[at + 1:]
    if changed != WHOLE:
        assert known().body(changed) is None


@pytest.mark.parametrize("data", [
    WHOLE[:-1], WHOLE + b"{", WHOLE + WHOLE, message(length=3), message(b"{}{}", length=2), b"\r\n" + WHOLE,
    *(WHOLE.replace(b"Length: 2", b"Length: " + length)
      for length in (b"+2", b"", b"2 ", b"00000000002", b"2, 2", b"2\r\nx: y", b"0x2", b"\xb2", b"-2"))])
def test_what_is_not_one_whole_message_with_a_plain_length_goes_to_the_parser(data: bytes) -> None:
    assert known().body(data) is None


def test_a_length_that_is_the_last_header_is_found() -> None:
    learned = known(b"HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\n{}")
    assert learned.body(b"HTTP/1.1 200 OK\r\ncontent-length:4\r\n\r\n[{}]") == b"[{}]"


@pytest.mark.parametrize("data", [
    WHOLE + b"x", message(b"{}", length=1), b"POST / HTTP/1.1\r\n\r\n", b"\r\n\r\n" + WHOLE, b"", b"\r\n\r\n",
    message(more=b"x: %b\r\n" % (b"x" * MAX_KNOWN_BYTES)), b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE])
def test_a_head_that_is_not_plainly_followed_by_its_body_is_not_learned(data: bytes) -> None:
    assert known_head(data, "told") is None
