"""Tool calls are judged beside a running edge, by a process that knows none of its secrets and outlives it never."""

import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.integration.edge_api.hot.datacenter import Datacenter, refuses
from tests.integration.edge_api.hot.test_tool_calls import BAD, GOOD, TOOL, calls
from tests.integration.edge_api.process import chat_body, client_of
from tests.integration.edge_api.test_standalone import KEY, AloneEdge
from tests.integration.edge_api.waiting import until

MODEL = "sim/any"


@pytest.fixture
async def upstream() -> AsyncIterator[Datacenter]:
    frontend = Datacenter(refuses(404))
    await frontend.listen()
    yield frontend
    await frontend.close()


@pytest.fixture
async def edge(tmp_path: Path, upstream: Datacenter) -> AsyncIterator[AloneEdge]:
    edge = AloneEdge(tmp_path, upstream.port)
    try:
        await edge.start()
        yield edge
    finally:
        await edge.stop(signal.SIGKILL)


async def counted(edge: AloneEdge) -> dict[str, float]:
    """The answers that were judged, by verdict."""
    async with httpx.AsyncClient(base_url=edge.url) as client:
        text = (await client.get("/metrics")).text
    found = re.findall(r'^meridian_edge_called_answers_total\{.*verdict="(\w+)"\} ([\d.]+)$', text, re.MULTILINE)
    return {verdict: float(value) for verdict, value in found}


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def seen_of(pid: int) -> tuple[bytes, set[str]]:
    """A process's environment, and what its descriptors are."""
    here = Path(f"/proc/{pid}")
    return (here / "environ").read_bytes(), {str(link.readlink()) for link in (here / "fd").iterdir()}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def judged(edge: AloneEdge, upstream: Datacenter) -> int:
    """The process that judges, once it has judged something."""
    assert edge.process is not None
    assert children(edge.process.pid) == [], "nothing is judged yet"
    upstream.script = calls(GOOD, BAD)
    async with client_of(edge, KEY) as client:
        for streamed in (True, False):
            body = chat_body(tools=[TOOL], stream=streamed, model=MODEL)
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200

    async def is_counted() -> bool:
        return await counted(edge) == {"fine": 1, "wrong": 1}

    await until(is_counted)
    [child] = children(edge.process.pid)
    return child


async def test_answers_are_judged_by_a_process_without_secrets_and_of_low_rank(
        edge: AloneEdge, upstream: Datacenter) -> None:
    child = await judged(edge, upstream)
    environment, held = seen_of(child)
    assert environment == b""
    assert len(held) == 3, "its three streams, and nothing of the edge's"
    assert os.getpriority(os.PRIO_PROCESS, child) >= 10
    assert "Paris" not in edge.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_process_ends_with_its_edge(edge: AloneEdge, upstream: Datacenter, number: signal.Signals) -> None:
    child = await judged(edge, upstream)
    await edge.stop(number)
    await until(lambda: not is_running(child))
