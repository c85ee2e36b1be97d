"""A control plane on a real database and a real socket, and the `meridian` command as a process of its own."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI

from tests.integration.control_plane.simulated import World, running_world
from tests.ran import Ran

DEADLINE_S = 60.0
MAIN = "from control_plane.cli.main import main; main()"


@dataclass
class Meridian:
    """Runs the command against a world's control plane. `world` syncs in the background."""

    world: World
    urls: str
    token: str
    state: Path

    async def __call__(self, *arguments: str, token: str = "") -> Ran:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MERIDIAN_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MAIN, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=environment | {
                "MERIDIAN_STATE": str(self.state), "MERIDIAN_CONTROL_PLANE_URL": self.urls, "COLUMNS": "80",
                "MERIDIAN_OPERATOR_TOKEN": token or self.token})
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[str]:
    """An app that was started already, on a loopback port."""
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error", ws="none"))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve([bound]))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        server.should_exit = True
        await serving


@pytest.fixture
async def meridian(database_url: str, tmp_path: Path) -> AsyncIterator[Meridian]:
    """The command line, with a fleet of two datacenters and two edges that runs."""
    async with running_world(database_url, tmp_path) as world, world.running(), listening(world.replica.app) as url:
        token = world.operator["authorization"].removeprefix("Bearer ")
        yield Meridian(world, url, token, tmp_path)
