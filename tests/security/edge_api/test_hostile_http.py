"""Clients that want the edge's memory, another answer than theirs, or the engine's own switches."""

import asyncio
import json
import logging
from contextlib import suppress
from dataclasses import replace

import pytest

from edge_api.hot.exchange import Exchange
from tests.integration.edge_api.hot.client import Connection, request
from tests.integration.edge_api.hot.conftest import EdgeUnderTest
from tests.integration.edge_api.hot.datacenter import Datacenter
from tests.integration.edge_api.waiting import until

HALF_BYTES = 300_007
CHUNKED = b"host: e\r\ntransfer-encoding: chunked\r\n"
TRAILERS = {
    "many": [b"x-%d: %b\r\n" % (number, b"y" * 4_000) for number in range(2_000)],
    "one": [b"x: ", *[b"y" * 4_000] * 2_000],
}


@pytest.mark.parametrize("kind", TRAILERS)
@pytest.mark.parametrize("target", [b"GET /v1/models", b"POST /v1/chat/completions"])
async def test_trailers_have_the_bound_of_a_head(
        edge: EdgeUnderTest, home: Datacenter, kind: str, target: bytes) -> None:
    key = b"authorization: Bearer " + edge.client.key.encode() + b"\r\n"
    async with edge.client.connection() as connection:
        await connection.send(target + b" HTTP/1.1\r\n" + key + CHUNKED + b"\r\n1\r\nx\r\n0\r\n")
        await asyncio.sleep(0.05)
        for piece in TRAILERS[kind]:
            await connection.send(piece)
        async with asyncio.timeout(0.5):  # shorter than the deadline of a head
            assert b" 431 " in await connection.reader.read()
    assert not home.seen


async def test_clients_past_the_bound_are_dropped_and_the_others_served(edge: EdgeUnderTest) -> None:
    edge.services.limits = replace(edge.services.limits, max_connections=2)
    async with edge.client.connection() as first, edge.client.connection() as second, edge.client.connection() as third:
        with suppress(ConnectionError):
            assert await third.is_closed()
        for served in (first, second):
            await served.send(request(edge.client.key, edge.client.body()))
            assert (await served.read_answer()).status == 200
    await until(lambda: not edge.server.server_state.connections)
    assert (await edge.client.ask()).status == 200


async def test_a_chunk_extension_is_not_kept_and_not_read(edge: EdgeUnderTest, home: Datacenter) -> None:
    data = json.dumps(edge.client.body()).encode()
    head = b"authorization: Bearer " + edge.client.key.encode() + b"\r\n" + CHUNKED
    async with edge.client.connection() as connection:
        await connection.send(b"POST /v1/chat/completions HTTP/1.1\r\n" + head + b"\r\n")
        await connection.send(b"%x;name=%b\r\n%b\r\n0\r\nx: y\r\n\r\n" % (len(data), b"z" * 30_000, data))
        assert (await connection.read_answer()).status == 200
    assert home.seen[0].raw == data


async def test_half_a_body_is_forgotten_with_its_connection(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(request(edge.client.key, b"x" * HALF_BYTES, length=900_000))
        await until(lambda: bool(_halves(edge)))
        (half,) = _halves(edge)
        connection.reset()
        await until(lambda: half.disconnected)
        assert not half._body


@pytest.mark.parametrize("line", [b"CONNECT a:1 HTTP/1.1", b"GET http://[ HTTP/1.1"])
async def test_a_target_that_is_no_url_is_a_400_and_no_fault_of_ours(
        edge: EdgeUnderTest, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], line: bytes) -> None:
    with caplog.at_level(logging.ERROR):
        answer = await edge.client.send(line + b"\r\nhost: e\r\n\r\n")
    assert (answer.status, answer.error["code"]) == (400, "invalid_http_request")
    assert "request_callback_failed" not in capsys.readouterr().out + caplog.text


@pytest.mark.parametrize("key", ["nvext", "nv\\u0065xt", "cache_salt", "c\\u0061che_salt"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_engines_own_switches_are_not_the_clients(
        edge: EdgeUnderTest, home: Datacenter, key: str, streamed: bool) -> None:
    body = json.dumps(edge.client.body(stream=streamed))
    raw = f'{{"{key}":{{"evil":1}},{body[1:-1]},"{key}":{{"evil":2}}}}'.encode()
    with suppress(asyncio.IncompleteReadError):
        assert (await edge.client.send(request(edge.client.key, raw))).status == 200
    assert b"evil" not in home.seen[0].raw


@pytest.mark.parametrize("value", ["a\u00e9", "x" * 9_000, "a; b", "%0d%0aevil: 1"])
async def test_a_session_name_goes_upstream_as_a_digest_only(
        edge: EdgeUnderTest, home: Datacenter, value: str) -> None:
    named = f"x-dynamo-session-id: {value}\r\nx-request-id: {value}\r\nx-tenant-id: evil\r\ntraceparent: 00-evil\r\n"
    await edge.client.send(request(edge.client.key, edge.client.body(), named))
    sent = home.seen[0].headers
    assert set(sent) - {"traceparent"} == {
        "host", "content-type", "accept", "x-request-id", "x-dynamo-session-id", "content-length"}
    assert "evil" not in str(sent)
    assert len(sent["x-dynamo-session-id"]) == 32
    assert int(sent["x-dynamo-session-id"], 16)


async def test_a_refused_requests_body_is_never_read_as_a_request(edge: EdgeUnderTest, home: Datacenter) -> None:
    inner = request(edge.client.key, edge.client.body())
    async with edge.client.connection() as connection:
        await connection.send(request("sk-wrong", b"", length=len(inner) + 1_000) + inner)
        assert await _statuses(connection) == [401]
    assert not home.seen


async def _statuses(connection: Connection) -> list[int]:
    """The statuses of all answers until the edge ends the connection."""
    async with asyncio.timeout(5):
        everything = await connection.reader.read()
    return [int(line.split(b" ")[1]) for line in everything.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def _halves(edge: EdgeUnderTest) -> list[Exchange]:
    """The requests of which just half a body has come."""
    cycles: list[object] = [connection.cycle for connection in list(edge.server.server_state.connections)]
    return [cycle for cycle in cycles if isinstance(cycle, Exchange) and cycle._size == HALF_BYTES]
