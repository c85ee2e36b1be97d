"""Probes against real sockets: what is ready, what is not there yet, and what is said at the deadline."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from infra.local import readiness
from infra.local.errors import StackRefused
from infra.local.ports import HOST, free_port

Script = Callable[[str], tuple[int, str]]


@asynccontextmanager
async def server(script: Script) -> AsyncIterator[str]:
    """A server that answers each path as the script says; its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, body = script(head.split(" ")[1])
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, HOST, 0) as listening:
        yield f"http://{HOST}:{listening.sockets[0].getsockname()[1]}"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """What the stack probes with."""
    async with httpx.AsyncClient(trust_env=False) as found:
        yield found


@pytest.mark.parametrize(("status", "ready"), [(200, True), (204, True), (404, False), (503, False)])
async def test_only_success_is_ready(client: httpx.AsyncClient, status: int, ready: bool) -> None:
    async with server(lambda path: (status, "")) as url:
        assert await readiness.answers(client, f"{url}/readyz")() is ready


async def test_nobody_listening_is_not_there_yet(client: httpx.AsyncClient) -> None:
    assert await readiness.answers(client, f"http://{HOST}:{free_port()}/readyz")() is False
    assert await readiness.lists_model(client, f"http://{HOST}:{free_port()}")() is False


async def test_a_frontend_without_workers_is_not_ready(client: httpx.AsyncClient) -> None:
    async with server(lambda path: (200, '{"data": []}')) as url:
        assert await readiness.lists_model(client, url)() is False


async def test_a_frontend_that_lists_the_model_is_ready(client: httpx.AsyncClient) -> None:
    listed = {"/v1/models": (200, '{"data": [{"id": "sim/glm-5.3"}]}')}
    async with server(listed.__getitem__) as url:
        assert await readiness.lists_model(client, url)() is True


async def test_a_file_is_there_or_not(tmp_path: Path) -> None:
    probe = readiness.exists(tmp_path / "heartbeat")
    assert await probe() is False
    (tmp_path / "heartbeat").touch()
    assert await probe() is True


async def test_the_first_request_is_repeated_until_it_works(client: httpx.AsyncClient) -> None:
    answers = iter([(404, "no such model"), (503, ""), (200, "{}")])
    async with server(lambda path: next(answers)) as url:
        await readiness.first_request(client, url, "sk")
    assert list(answers) == []


async def test_a_first_request_that_never_works_is_told_with_the_last_answer(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "FIRST_REQUEST_DEADLINE_S", 0.3)
    async with server(lambda path: (401, "bad key")) as url:
        with pytest.raises(StackRefused, match="HTTP 401: bad key"):
            await readiness.first_request(client, url, "sk")
