"""A replica that is told to stop does so at once, however many polls wait in it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from control_plane.contracts.clock import SystemClock
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.transport import ControlPlaneClient, SignatureAuth
from infra.local.ports import free_port
from tests.integration.control_plane.simulated import WEST, World, running_world

STOP_S = 1.0


class Process:
    """`meridian control-plane` as its user runs it."""

    def __init__(self, database_url: str, directory: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = directory / "control-plane.log"
        self._environment = os.environ | {
            "MERIDIAN_DATABASE_URL": database_url, "MERIDIAN_PORT": str(self.port),
            "MERIDIAN_SIGNING_KEY_FILE": str(directory / "snapshot.key")}

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "from control_plane.app import serve; serve()", env=self._environment,
                stdout=log, stderr=log)
        async with asyncio.timeout(30), httpx.AsyncClient(trust_env=False) as client:
            while not await self._is_ready(client):
                assert self._process.returncode is None, self.log()
                await asyncio.sleep(0.05)

    async def stop(self, number: signal.Signals) -> float:
        """Sends the signal; how many seconds the process went on for."""
        began_s = asyncio.get_running_loop().time()
        if self._process.returncode is None:
            self._process.send_signal(number)
        await asyncio.wait_for(self._process.wait(), 30)
        return asyncio.get_running_loop().time() - began_s

    def log(self) -> str:
        return self._log.read_text()

    async def _is_ready(self, client: httpx.AsyncClient) -> bool:
        try:
            return (await client.get(f"{self.url}/readyz")).status_code == 200
        except httpx.HTTPError:
            return False


@asynccontextmanager
async def running_process(database_url: str, directory: Path) -> AsyncIterator[Process]:
    process = Process(database_url, directory)
    try:
        await process.start()
        yield process
    finally:
        await process.stop(signal.SIGKILL)


async def edge_poll(world: World, client: ControlPlaneClient) -> httpx.Response:
    snapshot = world.edges[0].snapshot
    assert snapshot is not None
    body = (f'{{"boot_id":"b","release":"1","acked_lineage":{snapshot.lineage},"acked_version":{snapshot.version},'
            '"revocations_after":0,"open_requests":{},"wait_s":60}')
    return await client.post("/edge/v1/sync", body.encode(), 20)


async def agent_poll(world: World, client: ControlPlaneClient) -> httpx.Response:
    body = ('{"boot_id":"boot-1","release":"1","epoch":1,"seen_generation":1,"deployments":[],"acks":[],"wait_s":60}')
    return await client.post("/agent/v1/sync", body.encode(), 20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_replica_with_waiting_polls_stops_within_a_second_and_answers_them(
        database_url: str, tmp_path: Path, number: signal.Signals) -> None:
    async with running_world(database_url, tmp_path, edges=1) as world, \
            running_process(database_url, tmp_path) as process:
        peers = {IdentityKind.EDGE: world.edges[0].peer, IdentityKind.AGENT: world.agents[WEST].peer}
        clients = {kind: ControlPlaneClient([process.url], SignatureAuth(peer.identity, peer.key, SystemClock()))
                   for kind, peer in peers.items()}
        polls = [asyncio.create_task(edge_poll(world, clients[IdentityKind.EDGE])),
                 asyncio.create_task(agent_poll(world, clients[IdentityKind.AGENT]))]
        await asyncio.sleep(0.7)
        assert not any(poll.done() for poll in polls), [poll.result().text for poll in polls if poll.done()]
        took_s = await process.stop(number)
        assert [(await poll).status_code for poll in polls] == [200, 200]
        for client in clients.values():
            await client.aclose()
    assert took_s < STOP_S
    assert "Traceback" not in process.log()


async def test_a_replica_that_cannot_listen_says_so_with_its_exit_code(database_url: str, tmp_path: Path) -> None:
    async with running_process(database_url, tmp_path) as first:
        second = Process(database_url, tmp_path)
        second._environment |= {"MERIDIAN_PORT": str(first.port)}
        second.port = first.port
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from control_plane.app import serve; serve()", env=second._environment,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
        assert await asyncio.wait_for(process.wait(), 30) != 0
