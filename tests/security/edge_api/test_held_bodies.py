"""Clients that have the edge hold more than it can: bodies that never end, and long ones before endless streams."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from control_plane.contracts import ids
from tests.integration.edge_api.hot.client import Connection, request
from tests.integration.edge_api.hot.conftest import EdgeUnderTest
from tests.integration.edge_api.hot.datacenter import Datacenter, Upcall, chunk
from tests.integration.edge_api.waiting import until

BODY = 300_000
ROOM = 1 << 20  # for three such bodies, and a team has half of it


@pytest.fixture
def crowded(edge: EdgeUnderTest) -> EdgeUnderTest:
    edge.services.limits = replace(edge.services.limits, max_bodies_bytes=ROOM)
    return edge


def stranger(edge: EdgeUnderTest) -> str:
    """A key of a team of its own."""
    key = ids.new_secret("sk_meridian_local")
    edge.directory.known[ids.secret_digest(key)] = edge.principal.model_copy(update={"team_id": ids.new_id("team")})
    return key


async def open_halves(edge: EdgeUnderTest, stack: AsyncExitStack, count: int, key: str = "") -> list[Connection]:
    """Clients that send most of a body and no more."""
    clients = [await stack.enter_async_context(edge.client.connection()) for _ in range(count)]
    for client in clients:
        await client.send(request(key or edge.client.key, b"x" * BODY, length=BODY + 1))
    return clients


async def test_a_team_that_sends_bodies_without_an_end_leaves_room_for_others(
        crowded: EdgeUnderTest, home: Datacenter) -> None:
    async with AsyncExitStack() as stack:
        clients = await open_halves(crowded, stack, 4)
        done, _ = await asyncio.wait([asyncio.ensure_future(client.read_answer()) for client in clients], timeout=0.5)
        answers = [task.result() for task in done]
        assert [answer.status for answer in answers] == [503] * 3
        assert {answer.error["code"] for answer in answers} == {"edge_at_capacity"}
        assert crowded.hot.bodies.held_bytes == BODY
        body = crowded.client.body(user="y" * BODY)
        assert (await crowded.client.send(request(stranger(crowded), body))).status == 200
    await until(lambda: not crowded.hot.bodies.held_bytes)


async def test_the_body_of_a_stream_is_held_until_its_end(crowded: EdgeUnderTest, home: Datacenter) -> None:
    async def script(call: Upcall) -> None:
        await call.begin_stream()
        await call.send(chunk(" a", [1], completion=1))
        await call.until_abandoned()

    home.script = script
    async with crowded.client.connection() as connection:
        await connection.send(crowded.client.request(stream=True, user="y" * BODY))
        await connection.read_head()
        assert (await crowded.client.ask(user="y" * BODY)).status == 503
    await until(lambda: not crowded.hot.bodies.held_bytes)


async def test_all_teams_together_have_a_bound(crowded: EdgeUnderTest) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await open_halves(crowded, stack, 1, stranger(crowded))
        await until(lambda: crowded.hot.bodies.held_bytes == 3 * BODY)
        assert (await crowded.client.ask(user="y" * BODY)).status == 503
        assert (await crowded.client.ask()).status == 200
    await until(lambda: not crowded.hot.bodies.held_bytes)


@pytest.mark.parametrize("body", [b"{", b"", b"x" * (2 << 20)])
async def test_whatever_becomes_of_a_request_its_room_is_free(crowded: EdgeUnderTest, body: bytes) -> None:
    assert (await crowded.client.send(request(crowded.client.key, body))).status in (400, 413)
    assert (await crowded.client.ask()).status == 200
    assert not crowded.hot.bodies.held_bytes
