"""The way up over several replicas: one that is gone, mute or broken costs a bounded time and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from control_plane.contracts.transport import ControlPlaneAway, ControlPlaneClient
from tests.integration.edge_api.control_plane import ControlPlane, free_port, serving

PATH = "/edge/v1/sync"
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes the request and never answers."""
    await reader.read()


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers a byte at a time, never to the end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"x")
        await asyncio.sleep(0.05)


async def hanging_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closes the connection."""
    writer.close()


async def talking_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Is no HTTP server."""
    writer.write(b"220 mail.example ESMTP\r\n")
    writer.close()


@asynccontextmanager
async def replica(behaviour: Behaviour) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await behaviour(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize("behaviour", [mute, dripping, hanging_up, talking_nonsense])
async def test_a_replica_that_does_not_answer_is_left_within_the_deadline(
        control_plane: ControlPlane, behaviour: Behaviour) -> None:
    async with replica(behaviour) as broken, ControlPlaneClient([broken, control_plane.url]) as client:
        async with asyncio.timeout(3):
            answer = await client.post(PATH, b"{}", 0.5)
    assert answer.status_code == 401  # the living one answers, to a request that is not signed


@pytest.mark.parametrize("behaviour", [mute, dripping])
async def test_when_none_answers_it_is_said_for_each(behaviour: Behaviour) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    async with replica(behaviour) as broken, ControlPlaneClient([broken, gone]) as client:
        async with asyncio.timeout(3):
            with pytest.raises(ControlPlaneAway) as raised:
                await client.post(PATH, b"{}", 0.5)
    assert broken in str(raised.value)
    assert f"{gone}: ConnectError" in str(raised.value)


async def test_the_replica_that_answered_last_is_asked_first(control_plane: ControlPlane) -> None:
    async with serving(ControlPlane()) as second, ControlPlaneClient([control_plane.url, second.url]) as client:
        control_plane.away = True
        await client.post(PATH, b"{}", 5)
        control_plane.away = False
        await client.post(PATH, b"{}", 5)
    assert (control_plane.refused_requests, second.refused_requests) == (0, 2)


async def test_a_refusal_is_an_answer_and_no_reason_to_ask_another(control_plane: ControlPlane) -> None:
    async with serving(ControlPlane()) as second, ControlPlaneClient([control_plane.url, second.url]) as client:
        assert (await client.post(PATH, b"{}", 5)).status_code == 401
    assert second.refused_requests == 0
