"""An edge that is told to end says so before it turns anybody away."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.integration.edge_api.control_plane import TOKEN, ControlPlane, serving
from tests.integration.edge_api.process import EdgeProcess, chat_body, client_of, datacenter, edge_process
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.builders import snapshot

NOTICE_S = 1.5


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[EdgeProcess]:
    """Has a second and a half between the signal and its end."""
    (tmp_path / "token").write_text(TOKEN)
    async with datacenter() as frontend, serving(ControlPlane()) as control_plane:
        control_plane.publish(snapshot(ports={"us-east-1": frontend.port}, weights={"us-east-1": 1}))
        async with edge_process(tmp_path, control_plane.url, leaving_notice_s=NOTICE_S) as edge:
            yield edge


async def readiness(client: httpx.AsyncClient) -> int:
    return (await client.get("/readyz")).status_code


async def tell_to_end(edge: EdgeProcess, client: httpx.AsyncClient) -> None:
    assert edge.process is not None
    edge.process.send_signal(signal.SIGTERM)

    async def is_unready() -> bool:
        return await readiness(client) == 503

    await until(is_unready, 1)


async def test_it_serves_while_it_says_that_it_is_not_ready(edge: EdgeProcess) -> None:
    async with client_of(edge) as client:
        assert await readiness(client) == 200
        await tell_to_end(edge, client)
        async with client_of(edge) as newcomer:
            assert (await newcomer.post("/v1/chat/completions", json=chat_body())).status_code == 200
            assert (await newcomer.get("/healthz")).status_code == 200


async def test_it_ends_when_the_notice_is_over(edge: EdgeProcess) -> None:
    began_s = asyncio.get_running_loop().time()
    assert await edge.stop() == 0
    assert NOTICE_S <= asyncio.get_running_loop().time() - began_s < NOTICE_S + 5
    assert "edge_stopped" in edge.log()


async def test_a_second_signal_ends_the_notice(edge: EdgeProcess) -> None:
    async with client_of(edge) as client:
        await tell_to_end(edge, client)
    began_s = asyncio.get_running_loop().time()
    assert await edge.stop() == 0
    assert asyncio.get_running_loop().time() - began_s < NOTICE_S
