"""`meridian edge --upstream URL --key KEY` as its user runs it, before a real server on a socket."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from control_plane.contracts.usage import MeterSource, Outcome, UsageOpen, UsageRecord
from edge_api.metering.frames import Usage, decode, scan
from edge_api.metering.outbox import segment_numbers, segment_path
from tests.integration.edge_api.control_plane import free_port
from tests.integration.edge_api.process import Datacenter, EdgeProcess, chat_body, client_of, datacenter

KEY = "a key of our own making"


class AloneEdge(EdgeProcess):
    """The command line that people type."""

    def __init__(self, directory: Path, upstream_port: int) -> None:
        super().__init__(directory, "")
        self.upstream_port = upstream_port

    async def start(self, ready: bool = True) -> None:
        with self.log_path.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "from control_plane.cli.main import main; main()",
                "edge", "--upstream", f"http://127.0.0.1:{self.upstream_port}/v1", "--port", str(self.port),
                "--state-dir", str(self.state_dir), "--input-usd", "0.6", "--output-usd", "2.2",
                env=os.environ | {"MERIDIAN_STANDALONE_KEY": KEY}, stdout=log, stderr=log)
        await self.answers("/readyz")

    def usage(self) -> list[Usage]:
        """All that lies in the outbox."""
        directory = self.state_dir / "outbox"
        return [decode(stretch.payload) for number in segment_numbers(directory)
                for stretch in scan(segment_path(directory, number).read_bytes(), True) if stretch.payload is not None]


@pytest.fixture
async def upstream() -> AsyncIterator[Datacenter]:
    async with datacenter(tokens=4) as frontend:
        yield frontend


@pytest.fixture
async def edge(tmp_path: Path, upstream: Datacenter) -> AsyncIterator[AloneEdge]:
    edge = AloneEdge(tmp_path, upstream.port)
    try:
        await edge.start()
        yield edge
    finally:
        await edge.stop(signal.SIGKILL)


async def test_a_stream_is_served_and_metered(edge: AloneEdge) -> None:
    async with client_of(edge, KEY) as client:
        answer = await client.post("/v1/chat/completions", json=chat_body(stream_options={"include_usage": True}))
    assert answer.status_code == 200
    assert '"cost":0.0000184' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
    opened, record = edge.usage()
    assert isinstance(opened, UsageOpen)
    assert isinstance(record, UsageRecord)
    assert (record.outcome, record.meter) == (Outcome.COMPLETED, MeterSource.ENGINE)
    assert (record.prompt_tokens, record.completion_tokens) == (16, 4)
    assert Decimal(record.cost_usd) == Decimal("0.0000184")


async def test_another_key_is_refused_and_leaves_no_trace(edge: AloneEdge) -> None:
    async with client_of(edge, "another key") as client:
        answer = await client.post("/v1/chat/completions", json=chat_body())
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert edge.usage() == []


async def test_readiness_says_that_nobody_is_above(edge: AloneEdge) -> None:
    async with httpx.AsyncClient(base_url=edge.url) as client:
        assert (await client.get("/readyz")).json()["control_plane"].startswith("none")


async def test_usage_survives_a_kill_and_what_was_open_is_closed(edge: AloneEdge, upstream: Datacenter) -> None:
    async with client_of(edge, KEY) as client:
        await client.post("/v1/chat/completions", json=chat_body())
        upstream.pause_s = 30.0
        open_still = asyncio.create_task(client.post("/v1/chat/completions", json=chat_body()))
        async with asyncio.timeout(10):
            while len(edge.usage()) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await edge.stop(signal.SIGKILL)
        with pytest.raises(httpx.HTTPError):
            await open_still
    await edge.start()
    outcomes = [usage.outcome for usage in edge.usage() if isinstance(usage, UsageRecord)]
    assert outcomes == [Outcome.COMPLETED, Outcome.EDGE_LOST]


async def test_usage_can_be_read_while_the_edge_runs(edge: AloneEdge) -> None:
    async with client_of(edge, KEY) as client:
        await client.post("/v1/chat/completions", json=chat_body())
    read = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from control_plane.cli.main import main; main()", "edge", "--usage",
        "--state-dir", str(edge.state_dir), stdout=asyncio.subprocess.PIPE)
    lines = (await read.communicate())[0].splitlines()
    assert [json.loads(line)["completion_tokens"] for line in lines] == [4]


async def test_a_second_one_on_the_same_directory_is_refused(edge: AloneEdge) -> None:
    second = AloneEdge(edge.log_path.parent, edge.upstream_port)
    second.port = free_port()
    with pytest.raises(AssertionError, match="another edge runs"):
        await second.start()


async def test_the_key_is_in_no_log(edge: AloneEdge) -> None:
    assert await edge.stop() == 0
    assert KEY not in edge.log()
    assert "edge_stopped" in edge.log()
