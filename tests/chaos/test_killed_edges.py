"""An edge that is killed or told to end at any moment, under a load of every dialect: what its clients saw finished is
recorded, once, and what is open when it is told to end is finished.
"""

import asyncio
import json
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from control_plane.contracts import ids
from control_plane.contracts.usage import Outcome, UsageRecord
from tests.integration.edge_api.control_plane import TOKEN, ControlPlane, serving
from tests.integration.edge_api.hot.datacenter import DONE, Datacenter, Upcall, chunk, final_usage, whole_answer
from tests.integration.edge_api.process import EdgeProcess, client_of
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.builders import MODEL, snapshot

AT_ONCE = 3  # of each way to ask
LONGEST_LIFE_S = 0.8
BATCH_WAIT_S = 20.0
MESSAGES = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
ASKED: dict[str, tuple[str, dict[str, Any], bytes]] = {
    # path, body, and how a whole answer ends
    "chat": ("/v1/chat/completions", MESSAGES, b"}"),
    "chat stream": ("/v1/chat/completions", MESSAGES | {"stream": True}, b"data: [DONE]\n\n"),
    "completions stream": ("/v1/completions", {"prompt": "hi", "stream": True}, b"data: [DONE]\n\n"),
    "messages": ("/v1/messages", MESSAGES, b"}"),
    "messages stream": ("/v1/messages", MESSAGES | {"stream": True}, b"message_stop\"}\n\n"),
    "responses": ("/v1/responses", {"input": "hi"}, b"}"),
    "responses stream": ("/v1/responses", {"input": "hi", "stream": True}, b"}\n\n"),
}


async def paced(call: Upcall) -> None:
    """Takes a twentieth of a second to answer anything, as a unary answer or as six events."""
    if not call.body.get("stream"):
        await asyncio.sleep(0.05)
        await call.answer(200, whole_answer(" a"))
        return
    await call.begin_stream()
    for n in range(1, 6):
        await call.send(chunk(" a", [n], completion=n))
        await asyncio.sleep(0.01)
    await call.send(chunk("", [], finish="stop", completion=5), final_usage(16, 5), DONE)
    await call.end_stream()


@dataclass
class Load:
    """Clients that ask in every way, one request after the other, until their edge is gone. `finished` are the requests
    whose answers came whole, by id, with how they were asked; `begun` those whose answers began."""

    finished: dict[str, str] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    def clients(self, client: httpx.AsyncClient) -> list[Coroutine[Any, Any, None]]:
        return [self._ask_on(client, way) for way in ASKED for _ in range(AT_ONCE)]

    async def _ask_on(self, client: httpx.AsyncClient, way: str) -> None:
        with suppress(httpx.TransportError):
            while True:
                await self.ask(client, way)

    async def ask(self, client: httpx.AsyncClient, way: str) -> None:
        path, body, end = ASKED[way]
        async with client.stream("POST", path, json={"model": MODEL, **body}) as answer:
            assert answer.status_code == 200
            request_id = answer.headers["x-request-id"].removeprefix("req_")
            self.begun.add(request_id)
            whole = await answer.aread()
        assert whole.endswith(end)
        self.finished[request_id] = way


@pytest.fixture
async def control_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    (tmp_path / "token").write_text(TOKEN)
    frontend = Datacenter(paced)
    await frontend.listen()
    async with serving(ControlPlane()) as control_plane:
        control_plane.publish(snapshot(ports={"us-east-1": frontend.port}, weights={"us-east-1": 1}))
        yield control_plane
    await frontend.close()


@pytest.fixture
async def edge(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[EdgeProcess]:
    edge = EdgeProcess(tmp_path, control_plane.url)
    try:
        await edge.start()
        yield edge
    finally:
        await edge.stop(signal.SIGKILL)


def told(control_plane: ControlPlane) -> dict[str, list[UsageRecord]]:
    """Every record that was shipped, as often as it was."""
    found = defaultdict(list)
    for batch in control_plane.batches:
        for frame in batch.frames:
            if isinstance(frame, UsageRecord):
                found[frame.request_id.hex].append(frame)
    return found


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
async def test_no_moment_to_kill_an_edge_loses_or_doubles_what_was_finished(
        edge: EdgeProcess, control_plane: ControlPlane, kills: int) -> None:
    load = Load()
    for _ in range(kills):
        async with client_of(edge) as client:
            clients = asyncio.gather(*load.clients(client))
            await asyncio.sleep(ids.jitter(LONGEST_LIFE_S))
            await edge.stop(signal.SIGKILL)
            await clients
        await edge.start()
    async with client_of(edge) as client:
        await load.ask(client, "chat")
    with suppress(TimeoutError):
        await until(lambda: load.begun <= set(told(control_plane)), BATCH_WAIT_S)
    records = told(control_plane)
    assert set(load.finished.values()) == set(ASKED)
    assert load.finished.keys() <= records.keys()
    for request_id, copies in records.items():
        assert all(copy == copies[0] for copy in copies), "two records of one request contradict each other"
        if request_id in load.finished:
            assert copies[0].outcome is Outcome.COMPLETED
            assert copies[0].completion_tokens > 0
    assert load.begun <= records.keys()  # what was cut is settled as well


async def test_an_edge_that_is_told_to_end_takes_nothing_new_and_finishes_what_is_open(
        edge: EdgeProcess, control_plane: ControlPlane) -> None:
    load = Load()
    async with client_of(edge) as client:
        open_requests = [asyncio.create_task(load.ask(client, way)) for way in ASKED for _ in range(AT_ONCE)]
        await until(lambda: len(load.begun) > AT_ONCE)
        assert edge.process is not None
        edge.process.send_signal(signal.SIGTERM)
        await until(lambda: _is_not_ready(edge), 2)
        await asyncio.gather(*open_requests)
        assert await edge.stop() == 0
    assert load.finished.keys() == told(control_plane).keys()
    assert json.loads(edge.log().splitlines()[-1])["event"] == "edge_stopped"


async def _is_not_ready(edge: EdgeProcess) -> bool:
    """Whoever asks on a new connection, as load balancers do, is turned away."""
    async with httpx.AsyncClient(base_url=edge.url, trust_env=False) as client:
        try:
            return (await client.get("/readyz")).status_code == 503
        except httpx.TransportError:
            return True
