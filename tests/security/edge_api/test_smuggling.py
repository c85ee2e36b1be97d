"""One request in is at most one request out: whatever two readers could read in two ways is refused, and with it all
that follows on its connection."""

import json
import re

import pytest

from tests.integration.edge_api.hot.client import Connection, request
from tests.integration.edge_api.hot.conftest import EdgeUnderTest
from tests.integration.edge_api.hot.datacenter import Datacenter

CHUNKED = b"transfer-encoding: chunked\r\n"
# What comes between the usual headers and the blank line; LENGTH and BODY stand for the true ones.
AMBIGUOUS: dict[str, bytes] = {
    "both lengths": b"LENGTH" + CHUNKED + b"\r\nCHUNKS",
    "both lengths, the other way": CHUNKED + b"LENGTH\r\nCHUNKS",
    "the same length twice": b"LENGTHLENGTH\r\nBODY",
    "a list of lengths": b"content-length: 5, 5\r\n\r\nBODY",
    "an empty length": b"content-length: \r\n\r\nBODY",
    "a length in hexadecimal": b"content-length: 0x10\r\n\r\nBODY",
    "a length of no end": b"content-length: 99999999999999999999999\r\n\r\nBODY",
    "a blank before the colon of a length": b"content-length : 5\r\n\r\nBODY",
    "a length on a continued line": b"content-length:\r\n 5\r\n\r\nBODY",
    "a continued line": b"x: a\r\n b\r\nLENGTH\r\nBODY",
    "an unknown coding": b"transfer-encoding: xchunked\r\n\r\nCHUNKS",
    "a coding before chunked": b"transfer-encoding: gzip, chunked\r\n\r\nCHUNKS",
    "chunked twice": b"transfer-encoding: chunked, chunked\r\n\r\nCHUNKS",
    "chunked in two headers": CHUNKED + CHUNKED + b"\r\nCHUNKS",
    "chunked behind a vertical tab": b"transfer-encoding: \x0bchunked\r\n\r\nCHUNKS",
    "chunked before a tab": b"transfer-encoding: chunked\t\r\n\r\nCHUNKS",
    "chunked in quotes": b'transfer-encoding: "chunked"\r\n\r\nCHUNKS',
    "chunked with a parameter": b"transfer-encoding: chunked;q=1\r\n\r\nCHUNKS",
    "a blank before the colon of a coding": b"transfer-encoding : chunked\r\n\r\nCHUNKS",
    "a bare CR in a value": b"x: a\rcontent-length: 0\r\nLENGTH\r\nBODY",
    "a bare LF at a line's end": b"x: a\nLENGTH\r\nBODY",
    "a bare LF at the head's end": b"LENGTH\nBODY",
    "a zero byte in a value": b"x: a\x00b\r\nLENGTH\r\nBODY",
    "a zero byte in a name": b"x\x00: a\r\nLENGTH\r\nBODY",
    "a header without a name": b": a\r\nLENGTH\r\nBODY",
    "a signed chunk": CHUNKED + b"\r\n-1\r\nBODY\r\n0\r\n\r\n",
    "a chunk of no end": CHUNKED + b"\r\nfffffffffffffffff\r\nBODY",
    "a chunk in C's hexadecimal": CHUNKED + b"\r\n0xSIZE\r\nBODY\r\n0\r\n\r\n",
    "a blank behind a chunk's size": CHUNKED + b"\r\nSIZE \r\nBODY\r\n0\r\n\r\n",
    "chunks that end in LF": CHUNKED + b"\r\nSIZE\nBODY\n0\n\n",
    "an extension that ends in LF": CHUNKED + b"\r\nSIZE;a\nBODY\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"\r\nSIZE\r\nBODYXX0\r\n\r\n",
    "a length in the trailers": CHUNKED + b"\r\nSIZE\r\nBODY\r\n0\r\ncontent-length: 5\r\n\r\n",
}
OTHER_VERSIONS: dict[str, bytes] = {
    "HTTP/0.9": b"GET /v1/models\r\n\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "HTTP/2.0 in words": b"POST /v1/chat/completions HTTP/2.0\r\nKEYLENGTH\r\nBODY",
    "HTTP/1.2": b"POST /v1/chat/completions HTTP/1.2\r\nKEYLENGTH\r\nBODY",
    "HTTP/1.0 in chunks": b"POST /v1/chat/completions HTTP/1.0\r\nKEY" + CHUNKED + b"\r\nCHUNKS",
}


def filled(edge: EdgeUnderTest, template: bytes) -> bytes:
    """The template with the true key, body and length in it."""
    body = json.dumps(edge.client.body()).encode()
    chunks = b"SIZE\r\nBODY\r\n0\r\n\r\n"
    for word, meant in ((b"CHUNKS", chunks), (b"KEY", b"host: e\r\nauthorization: Bearer %b\r\n"
                                              % edge.client.key.encode()),
                        (b"LENGTH", b"content-length: %d\r\n" % len(body)), (b"SIZE", b"%x" % len(body)),
                        (b"BODY", body)):
        template = template.replace(word, meant)
    return template


async def everything(connection: Connection) -> list[bytes]:
    """All answers until the edge ends the connection, one an entry."""
    return re.split(rb"HTTP/1\.1 (?=\d{3} )", await connection.reader.read())[1:]


@pytest.mark.parametrize("kind", AMBIGUOUS)
async def test_what_can_be_read_in_two_ways_ends_the_connection_unread(
        edge: EdgeUnderTest, home: Datacenter, kind: str) -> None:
    raw = filled(edge, b"POST /v1/chat/completions HTTP/1.1\r\nKEY" + AMBIGUOUS[kind])
    async with edge.client.connection() as connection:
        await connection.send(raw + edge.client.request())
        [answer] = await everything(connection)
    assert answer.startswith(b"400 ")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_http_request")
    assert not home.seen
    assert not edge.frames()


@pytest.mark.parametrize("kind", OTHER_VERSIONS)
async def test_what_is_no_http_1_1_is_told_so(edge: EdgeUnderTest, home: Datacenter, kind: str) -> None:
    async with edge.client.connection() as connection:
        await connection.send(filled(edge, OTHER_VERSIONS[kind]))
        [answer] = await everything(connection)
    assert answer.startswith(b"400 ")
    assert not home.seen


@pytest.mark.parametrize("target", [b"http://edge.example/v1/chat/completions", b"/v1/chat/completions?api=1"])
async def test_a_target_in_another_form_is_the_same_route(
        edge: EdgeUnderTest, home: Datacenter, target: bytes) -> None:
    raw = filled(edge, b"POST " + target + b" HTTP/1.1\r\nKEYLENGTH\r\nBODY")
    assert (await edge.client.send(raw)).status == 200
    assert [call.path for call in home.seen] == ["/v1/chat/completions"]


@pytest.mark.parametrize("target", [b"http://edge.example", b"http://edge.example?a=b", b"*"])
async def test_a_target_without_a_path_is_the_root(edge: EdgeUnderTest, target: bytes) -> None:
    assert (await edge.client.send(filled(edge, b"GET " + target + b" HTTP/1.1\r\nKEY\r\n"))).status == 404


async def test_a_request_in_anothers_body_stays_its_body(edge: EdgeUnderTest, home: Datacenter) -> None:
    inner = edge.client.request()
    async with edge.client.connection() as connection:
        await connection.send(b"GET /v1/models HTTP/1.1\r\nhost: e\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
                              % (len(inner), inner))
        [answer] = await everything(connection)
    assert answer.startswith(b"200 ")
    assert not home.seen


@pytest.mark.parametrize("line", [b"GET /v1/models", b"POST /v1/chat/completions"])
@pytest.mark.parametrize("to", [b"h2c", b"websocket"])
async def test_an_upgrade_is_told_that_there_is_none(edge: EdgeUnderTest, line: bytes, to: bytes) -> None:
    answer = await edge.client.send(filled(
        edge, line + b" HTTP/1.1\r\nKEYconnection: Upgrade, HTTP2-Settings\r\nupgrade: " + to + b"\r\nLENGTH\r\nBODY"))
    assert (answer.status, answer.error["code"]) == (400, "invalid_http_request")
    assert "upgrade" in answer.error["message"]


@pytest.mark.parametrize(("raw", "status", "kind"), [
    (b"POST /v1/messages HTTP/1.1\r\nKEYLENGTH" + CHUNKED + b"\r\nCHUNKS", 400, "invalid_request_error"),
    (b"POST /v1/messages HTTP/1.1\r\nKEYtransfer-encoding: gzip, chunked\r\n\r\nCHUNKS", 400, "invalid_request_error"),
    (b"POST /v1/messages HTTP/1.1\r\nKEYcontent-length: 2000000\r\n\r\n", 413, "request_too_large"),
    (b"POST /v1/messages HTTP/1.1\r\nLENGTH\r\nBODY", 401, "authentication_error"),
    (b"POST /v1/messages HTTP/1.1\r\nKEYcontent-length: 2\r\n\r\n{}", 400, "invalid_request_error"),
    (b"GET /v1/messages HTTP/1.1\r\nKEY\r\n", 405, "invalid_request_error"),
    (b"POST /api/v1/messages/batches HTTP/1.1\r\nKEY\r\n", 404, "not_found_error"),
], ids=["two lengths", "a coding", "too long", "no key", "no model", "another method", "another path"])
async def test_anthropics_clients_are_told_in_their_own_shape(
        edge: EdgeUnderTest, raw: bytes, status: int, kind: str) -> None:
    answer = await edge.client.send(filled(edge, raw))
    told = answer.json
    assert (answer.status, told["type"], told["error"]["type"]) == (status, "error", kind)
    assert told["request_id"] == answer.headers["request-id"]


async def test_a_request_cut_anywhere_is_one_request(edge: EdgeUnderTest, home: Datacenter) -> None:
    whole = request(edge.client.key, edge.client.body())
    async with edge.client.connection() as connection:
        for cut in range(1, len(whole), 7):
            await connection.send(whole[:cut])
            await connection.send(whole[cut:])
            assert (await connection.read_answer()).status == 200
    assert len(home.seen) == len(range(1, len(whole), 7))
