"""How long a change of routing takes to be used by every edge: real replicas, real edge processes, real Postgres.

Each sample is one edge and one change: from the beginning of the transaction that made the snapshot to the edge's
acknowledgement, which it sends once the snapshot is in use and on its disk. Both moments are the database's clock, so
nothing that this bench does itself is in them.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from infra.local.ports import free_port
from infra.local.postgres import Postgres
from tests import throwaway
from tests.bench.harness import Figures, percentile, verdict
from tests.integration.control_plane.simulated import EAST, WEST, document
from tests.integration.edge_api.process import EdgeProcess

NAME = "snapshot"
SUMMARY = "from a change of routing to its use by every edge: seconds, p99 (yardstick 1 s); --large: twice the edges"
OPTIONS = ("--large",)

LIMIT_S = 1.0
REPLICAS = 2
MERIDIAN = str(Path(sys.executable).with_name("meridian"))
WEIGHT = 50
START_S, CHANGE_DEADLINE_S = 90.0, 15.0
LOOK_S = 0.01
PAUSES_S = (0.0, 0.15, 0.4, 1.1)
"""Between two changes, so that they meet polls at every age."""

HEAD = "SELECT version, built_at FROM routing_snapshot ORDER BY lineage DESC, version DESC LIMIT 1"
ACKED = "SELECT id, acked_version, last_seen_at FROM edge"


@dataclass(frozen=True, slots=True)
class World:
    """Replicas, edges, and a look into their database."""

    urls: list[str]
    database: asyncpg.Connection
    operator: httpx.AsyncClient
    edges: int


def main(large: bool = False) -> Figures:
    """Makes changes one after the other and waits for all edges each time."""
    edges, changes = (12, 300) if large else (6, 100)
    samples = asyncio.run(measure(edges, changes))
    seconds = sorted(samples)
    p50, p99 = percentile(seconds, 50), percentile(seconds, 99)
    print(f"{changes} changes, {edges} edges, {REPLICAS} replicas: {len(samples)} acknowledgements")
    print(f"p50 {p50:.3f} s   p99 {p99:.3f} s   longest {seconds[-1]:.3f} s   {verdict(p99, LIMIT_S)} s")
    return {"edges": edges, "changes": changes, "samples": len(samples), "p50_s": round(p50, 3),
            "p99_s": round(p99, 3), "longest_s": round(seconds[-1], 3),
            "within": p99 <= LIMIT_S and len(samples) == edges * changes}


async def measure(edges: int, changes: int) -> list[float]:
    """Seconds of each edge and change."""
    with tempfile.TemporaryDirectory(prefix="meridian-bench-") as place, throwaway.postgres_server() as server, \
            throwaway.database(server) as url:
        async with running(Path(place), server, url, edges) as world:
            samples = []
            for number in range(changes):
                await asyncio.sleep(PAUSES_S[number % len(PAUSES_S)])
                samples += await change(world, weight=WEIGHT + (number + 1) % 2)
            return samples


async def change(world: World, weight: int) -> list[float]:
    """Commits one change at one of the replicas; how long each edge took to use it."""
    wanted = topology(weight)
    answer = await world.operator.put(f"{world.urls[weight % REPLICAS]}/operator/v1/topology", content=wanted)
    answer.raise_for_status()
    newest = await world.database.fetchrow(HEAD)
    assert newest is not None
    return list((await acknowledged(world, newest["version"], newest["built_at"])).values())


async def acknowledged(world: World, version: int, built_at: Any) -> dict[str, float]:
    """By edge, when it said first that it uses `version` or a later one, in seconds after `built_at`."""
    seen: dict[str, float] = {}
    async with asyncio.timeout(CHANGE_DEADLINE_S):
        while len(seen) < world.edges:
            for row in await world.database.fetch(ACKED):
                if row["acked_version"] >= version:
                    seen.setdefault(row["id"], (row["last_seen_at"] - built_at).total_seconds())
            await asyncio.sleep(LOOK_S)
    return seen


@asynccontextmanager
async def running(place: Path, server: Postgres, url: str, edges: int) -> AsyncIterator[World]:
    """Everything started, and every edge using the first snapshot."""
    environment = os.environ | {"MERIDIAN_DATABASE_URL": url, "MERIDIAN_SIGNING_KEY_FILE": str(place / "snapshot.key")}
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(replica(environment, place / f"replica-{number}.log"))
                for number in range(REPLICAS)]
        token = json.loads(await output(environment, MERIDIAN, "bootstrap"))["token"]
        operator = await stack.enter_async_context(httpx.AsyncClient(
            headers={"authorization": f"Bearer {token}", "content-type": "application/json"}, timeout=30,
            trust_env=False))
        (await operator.put(f"{urls[0]}/operator/v1/topology", content=topology(WEIGHT))).raise_for_status()
        database = await asyncpg.connect(url.replace("+asyncpg", ""))
        stack.push_async_callback(database.close)
        for number in range(edges):
            await start_edge(stack, place / f"edge-{number}", urls, operator)
        world = World(urls, database, operator, edges)
        newest = await database.fetchrow(HEAD)
        assert newest is not None
        await acknowledged(world, newest["version"], newest["built_at"])
        yield world


@asynccontextmanager
async def replica(environment: dict[str, str], log: Path) -> AsyncIterator[str]:
    """A control-plane process that is ready; its address."""
    port = free_port()
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            MERIDIAN, "control-plane", env=environment | {"MERIDIAN_PORT": str(port)}, stdout=file, stderr=file)
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(START_S), httpx.AsyncClient(timeout=1, trust_env=False) as client:
            while not await is_ready(client, url):
                assert process.returncode is None, f"the replica ended; see {log}"
                await asyncio.sleep(0.1)
        yield url
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()


async def is_ready(client: httpx.AsyncClient, url: str) -> bool:
    """Whether the process can serve."""
    with contextlib.suppress(httpx.HTTPError):
        return (await client.get(f"{url}/readyz")).status_code == httpx.codes.OK
    return False


async def start_edge(stack: AsyncExitStack, place: Path, urls: list[str], operator: httpx.AsyncClient) -> None:
    """An enrolled edge process. Every other one asks the second replica first."""
    await asyncio.to_thread(place.mkdir)
    answer = await operator.post(f"{urls[0]}/operator/v1/enrolment-tokens", json={"kind": "edge", "subject": WEST})
    answer.raise_for_status()
    await asyncio.to_thread((place / "token").write_text, answer.json()["token"])
    ordered = urls if int(place.name.rpartition("-")[2]) % 2 else urls[::-1]
    edge = EdgeProcess(place, ",".join(ordered))
    stack.push_async_callback(edge.stop, signal.SIGKILL)
    await edge.start()


async def output(environment: dict[str, str], *command: str) -> str:
    """What a command prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode()


def topology(weight: int) -> str:
    """The document, with this weight for one of its datacenters."""
    wanted = document(WEST, EAST)
    wanted.datacenters[0] = wanted.datacenters[0].model_copy(update={"weight": weight})
    return wanted.model_dump_json()
