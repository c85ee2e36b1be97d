"""What is kept of a request's head for the next request of its connection."""

import pytest

from edge_api.dialects.plain import CHAT
from edge_api.hot.head import Head

HEADERS = {b"host": b"edge", b"content-length": b"2"}
DATA = b"POST /v1/chat/completions HTTP/1.1\r\nhost: edge\r\ncontent-length: 2\r\n\r\n{}"


def head(keep_alive: bool = True, more: dict[bytes, bytes] | None = None) -> Head:
    return Head(CHAT, HEADERS | (more or {}), keep_alive, chunked=True)


def test_a_head_is_known_by_its_bytes_without_its_length() -> None:
    told = head()
    known = told.known(DATA)
    assert known is not None
    assert known.told is told
    assert known.body(DATA.replace(b": 2", b": 3") + b"]") == b"{}]"
    assert told.headers == {b"host": b"edge"}


@pytest.mark.parametrize("told", [
    head(keep_alive=False), head(more={b"expect": b"100-continue"}), head(more={b"transfer-encoding": b"chunked"})])
def test_a_head_that_says_more_of_its_body_or_connection_is_read_each_time(told: Head) -> None:
    assert told.known(DATA) is None


def test_a_head_whose_body_has_not_come_whole_keeps_its_length() -> None:
    told = head()
    assert told.known(DATA[:-1]) is None
    assert told.headers == HEADERS


@pytest.mark.parametrize(("value", "expects"), [(b"100-Continue", True), (b"tea", False)])
def test_a_client_may_wait_to_be_told_to_go_on(value: bytes, expects: bool) -> None:
    assert head(more={b"expect": value}).expects_continue is expects
