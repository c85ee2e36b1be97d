"""A real edge process: it starts by its disk, loses no usage to any end, and leaves in order."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from control_plane.contracts.usage import Outcome, UsageRecord
from edge_api.metering.frames import decode, scan
from edge_api.metering.outbox import segment_numbers, segment_path
from tests.integration.edge_api.control_plane import ControlPlane
from tests.integration.edge_api.process import (
    Datacenter,
    EdgeProcess,
    chat_body,
    client_of,
    datacenter,
    edge_process,
)
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.builders import snapshot

REFUSES = 1  # a port of the loopback where nobody listens


@pytest.fixture
async def frontend() -> AsyncIterator[Datacenter]:
    async with datacenter() as frontend:
        yield frontend


@pytest.fixture
async def edge(
        control_plane: ControlPlane, frontend: Datacenter, tmp_path: Path, token_file: Path,
) -> AsyncIterator[EdgeProcess]:
    control_plane.publish(snapshot(weights={"us-east-1": 100}, ports={"us-east-1": frontend.port}))
    async with edge_process(tmp_path, control_plane.url) as edge:
        yield edge


async def chat(client: httpx.AsyncClient) -> str:
    """The request id of a stream that came to its end."""
    answer = await client.post("/v1/chat/completions", json=chat_body())
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
    return answer.headers["x-request-id"].removeprefix("req_")


async def stored(control_plane: ControlPlane, count: int) -> dict[str, UsageRecord]:
    """The records once there are `count`, by the request id's hex digits."""
    await until(lambda: len(control_plane.records) >= count, 20)
    return {request_id.hex: record for request_id, record in control_plane.records.items()}


async def settled(control_plane: ControlPlane, request_ids: set[str]) -> dict[str, UsageRecord]:
    """All records, once those of `request_ids` are among them or have had 20 s to come."""
    with suppress(TimeoutError):
        await until(lambda: request_ids <= {request_id.hex for request_id in control_plane.records}, 20)
    return {request_id.hex: record for request_id, record in control_plane.records.items()}


def in_outbox(edge: EdgeProcess) -> list[str]:
    directory = edge.state_dir / "outbox"
    usages = [decode(stretch.payload) for number in segment_numbers(directory)
              for stretch in scan(segment_path(directory, number).read_bytes(), True) if stretch.payload is not None]
    return [usage.request_id.hex for usage in usages if isinstance(usage, UsageRecord)]


async def test_a_request_is_served_metered_and_shipped(edge: EdgeProcess, control_plane: ControlPlane) -> None:
    async with client_of(edge) as client:
        request_id = await chat(client)
    record = (await stored(control_plane, 1))[request_id]
    assert (record.team_id, record.datacenter_id, record.outcome) == ("team_1", "us-east-1", Outcome.COMPLETED)
    assert (record.prompt_tokens, record.completion_tokens) == (16, 5)


async def test_models_are_listed_raw_and_encoded_without_a_key(edge: EdgeProcess) -> None:
    async with httpx.AsyncClient(base_url=edge.url) as client:
        for path in ("/v1/models/sim/glm-5.3", "/v1/models/sim%2Fglm-5.3", "/api/v1/models/sim%2fglm-5.3"):
            assert (await client.get(path)).json()["id"] == "sim/glm-5.3"


async def test_an_edge_restarts_and_serves_with_everything_above_it_down(
        edge: EdgeProcess, control_plane: ControlPlane) -> None:
    async with client_of(edge) as client:
        await chat(client)
    assert await edge.stop() == 0
    control_plane.away = True
    await edge.start()
    async with client_of(edge) as client:
        served = {await chat(client) for _ in range(5)}
        told = (await client.get("/metrics")).text
    assert "meridian_edge_snapshot_version 0.0" not in told  # what it has from its disk is told, too
    assert "meridian_edge_control_plane_away 1.0" in told
    assert served <= set(in_outbox(edge))
    control_plane.away = False
    assert served <= set(await stored(control_plane, 6))


async def test_an_edge_whose_control_plane_is_away_at_first_says_so_and_then_serves(
        control_plane: ControlPlane, frontend: Datacenter, tmp_path: Path, token_file: Path) -> None:
    control_plane.away = True
    control_plane.publish(snapshot(weights={"us-east-1": 100}, ports={"us-east-1": frontend.port}))
    edge = EdgeProcess(tmp_path, control_plane.url)
    try:
        await edge.start(ready=False)
        async with client_of(edge) as client:
            refused = await client.get("/readyz")
            assert refused.status_code == 503
            assert "not enrolled yet" in refused.json()["error"]["message"]
            assert (await client.post("/v1/chat/completions", json=chat_body())).status_code == 503
            control_plane.away = False
            await edge.answers("/readyz")
            await chat(client)
    finally:
        await edge.stop(signal.SIGKILL)


async def test_kill_9_loses_no_finished_request_and_settles_the_open_ones(
        control_plane: ControlPlane, tmp_path: Path, token_file: Path) -> None:
    finished: set[str] = set()
    begun: set[str] = set()

    async def load(client: httpx.AsyncClient) -> None:
        """Streams, one after the other, until the edge is gone. Finished means that the client saw [DONE]."""
        while True:
            async with client.stream("POST", "/v1/chat/completions", json=chat_body()) as answer:
                request_id = answer.headers["x-request-id"].removeprefix("req_")
                begun.add(request_id)
                async for line in answer.aiter_lines():
                    if line == "data: [DONE]":
                        finished.add(request_id)

    async with datacenter(tokens=10, pause_s=0.005) as frontend:
        control_plane.publish(snapshot(weights={"us-east-1": 100}, ports={"us-east-1": frontend.port}))
        async with edge_process(tmp_path, control_plane.url) as edge:
            for _ in range(3):
                async with client_of(edge) as client:
                    clients = [asyncio.create_task(load(client)) for _ in range(20)]
                    await asyncio.sleep(0.7)
                    await edge.stop(signal.SIGKILL)
                    ended = await asyncio.gather(*clients, return_exceptions=True)
                    assert all(isinstance(end, httpx.TransportError) for end in ended)
                await edge.start()
            async with client_of(edge) as client:
                finished.add(await chat(client))
            records = await settled(control_plane, begun | finished)
    assert len(finished) > 50
    assert begun - finished  # some were cut
    assert finished <= set(records)
    assert {records[request_id].outcome for request_id in finished} == {Outcome.COMPLETED}
    assert begun <= set(records)
    assert Outcome.EDGE_LOST in {records[request_id].outcome for request_id in begun - finished}


async def test_sigterm_lets_streams_finish_and_ships_their_usage(
        control_plane: ControlPlane, tmp_path: Path, token_file: Path) -> None:
    async with datacenter(tokens=10, pause_s=0.15) as frontend:
        control_plane.publish(snapshot(weights={"us-east-1": 100}, ports={"us-east-1": frontend.port}))
        async with edge_process(tmp_path, control_plane.url) as edge, client_of(edge) as client:
            streams = [asyncio.create_task(chat(client)) for _ in range(10)]
            await until(lambda: frontend.seen >= 10)
            assert await edge.stop() == 0
            finished = set(await asyncio.gather(*streams))
    assert finished == {request_id.hex for request_id in control_plane.records}
    assert "edge_stopped" in edge.log()


async def test_streams_beyond_the_grace_are_cut_and_still_metered(
        control_plane: ControlPlane, tmp_path: Path, token_file: Path) -> None:
    async with datacenter(tokens=10_000, pause_s=0.05) as frontend:
        control_plane.publish(snapshot(weights={"us-east-1": 100}, ports={"us-east-1": frontend.port}))
        async with edge_process(tmp_path, control_plane.url, shutdown_grace_s=1) as edge, client_of(edge) as client:
            stream = asyncio.create_task(client.post("/v1/chat/completions", json=chat_body()))
            await until(lambda: frontend.seen >= 1)
            await asyncio.sleep(0.3)
            assert await edge.stop() == 0
            with pytest.raises(httpx.TransportError):
                await stream
    (record,) = control_plane.records.values()
    assert record.completion_tokens > 0


async def test_usage_survives_an_orderly_end_without_a_control_plane(
        edge: EdgeProcess, control_plane: ControlPlane) -> None:
    async with client_of(edge) as client:
        await chat(client)
        control_plane.away = True
        served = {await chat(client) for _ in range(3)}
    assert await edge.stop() == 0
    assert served <= set(in_outbox(edge))


async def test_a_revoked_key_is_refused_within_a_poll(edge: EdgeProcess, control_plane: ControlPlane) -> None:
    async with client_of(edge) as client:
        await chat(client)
        (digest,) = control_plane.principals
        control_plane.revoke(digest)
        started = asyncio.get_running_loop().time()
        while (await client.post("/v1/chat/completions", json=chat_body())).status_code == 200:
            assert asyncio.get_running_loop().time() - started < 5
        assert (await client.post("/v1/chat/completions", json=chat_body())).status_code == 401


async def test_drained_datacenters_get_no_new_requests(
        control_plane: ControlPlane, frontend: Datacenter, tmp_path: Path, token_file: Path) -> None:
    async with datacenter() as other:
        ports = {"us-east-1": frontend.port, "eu-north-1": other.port}
        control_plane.publish(snapshot(version=1, ports=ports))
        async with edge_process(tmp_path, control_plane.url) as edge, client_of(edge) as client:
            for turn in range(20):
                await client.post("/v1/chat/completions", json=chat_body(prompt_cache_key=f"s{turn}"))
            assert frontend.seen > 0
            control_plane.publish(snapshot(version=2, ports=ports, weights={"us-east-1": 0, "eu-north-1": 100}))
            await until(lambda: any(sync.acked_version == 2 for sync in control_plane.syncs), 5)
            before = frontend.seen
            for turn in range(20):
                await client.post("/v1/chat/completions", json=chat_body(prompt_cache_key=f"s{turn}"))
            assert (frontend.seen, other.seen >= 20) == (before, True)


async def test_a_dead_datacenter_is_left_for_the_living_one(
        control_plane: ControlPlane, frontend: Datacenter, tmp_path: Path, token_file: Path) -> None:
    control_plane.publish(snapshot(ports={"us-east-1": REFUSES, "eu-north-1": frontend.port}))
    async with edge_process(tmp_path, control_plane.url) as edge, client_of(edge) as client:
        for turn in range(30):
            answer = await client.post("/v1/chat/completions", json=chat_body(prompt_cache_key=f"s{turn}"))
            assert answer.status_code == 200, answer.text
    assert frontend.seen == 30


async def test_two_edges_never_share_a_state_directory(edge: EdgeProcess, control_plane: ControlPlane) -> None:
    second = EdgeProcess(edge.state_dir.parent, control_plane.url)
    with pytest.raises(AssertionError, match="another edge runs with the state directory"):
        await second.start()
    assert second.process is not None
    assert await second.process.wait() == 1


async def test_a_taken_port_ends_the_edge_with_one_line(
        control_plane: ControlPlane, tmp_path: Path, token_file: Path) -> None:
    edge = EdgeProcess(tmp_path, control_plane.url)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", edge.port))
        taken.listen()
        with pytest.raises((AssertionError, httpx.HTTPError, TimeoutError)):
            await asyncio.wait_for(edge.start(), 10)
        assert edge.process is not None
        assert await asyncio.wait_for(edge.process.wait(), 10) != 0
    assert "address already in use" in edge.log()


@pytest.mark.parametrize(("settings", "line"), [
    ({"control_plane_urls": ""}, "MERIDIAN_CONTROL_PLANE_URLS"),
    ({"port": "many"}, "MERIDIAN_PORT"),
    ({"state_dir": "/proc/nowhere"}, "/proc/nowhere"),
])
async def test_wrong_settings_end_the_edge_with_one_line(
        tmp_path: Path, settings: dict[str, str], line: str) -> None:
    edge = EdgeProcess(tmp_path, "http://127.0.0.1:1", **settings)
    with pytest.raises(AssertionError):
        await edge.start(ready=False)
    assert edge.log().startswith("meridian edge: ")
    assert line in edge.log()
    assert "Traceback" not in edge.log()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_while_the_disk_is_read_is_a_quiet_end(tmp_path: Path, number: signal.Signals) -> None:
    outbox = tmp_path / "edge" / "outbox"
    outbox.mkdir(parents=True)
    os.mkfifo(outbox / "0000000001.seg")  # nobody writes: the start stands still where it reads the outbox
    edge = EdgeProcess(tmp_path, "http://127.0.0.1:1")
    starting = asyncio.create_task(edge.start(ready=False))
    await until(lambda: (tmp_path / "edge" / "lock").exists(), 10)
    await asyncio.sleep(0.3)
    assert await edge.stop(number) == 0
    with pytest.raises(AssertionError):
        await starting
    assert edge.log() == ""


async def test_an_edge_whose_authorities_cannot_be_read_says_so(tmp_path: Path) -> None:
    edge = EdgeProcess(tmp_path, "http://127.0.0.1:1", upstream_ca_file=tmp_path / "nowhere.pem")
    with pytest.raises(AssertionError):
        await edge.start(ready=False)
    assert "nowhere.pem" in edge.log()
    assert "Traceback" not in edge.log()


async def test_logs_are_one_json_object_a_line(edge: EdgeProcess) -> None:
    await edge.stop()
    events = [json.loads(line)["event"] for line in edge.log().splitlines()]
    assert events[0] == "edge_started"
    assert events[-1] == "edge_stopped"
