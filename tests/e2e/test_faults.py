"""Things are killed while clients are served. Nothing is lost, and clients see nothing or one clear error."""

import asyncio
import time

import pytest
from openai import AsyncOpenAI

from tests.e2e.stack import LocalStack, until
from tests.e2e.test_operations import Load

pytestmark = pytest.mark.stack
MODEL = "sim/glm-5.3"


async def serve(load: Load, seconds: float, every_s: float = 0.1) -> int:
    """Short requests for a while; returns how many were sent."""
    ends, tasks = time.monotonic() + seconds, []
    while time.monotonic() < ends:
        tasks.append(asyncio.create_task(load.short()))
        await asyncio.sleep(every_s)
    await asyncio.gather(*tasks)
    return len(tasks)


def requests_recorded(stack: LocalStack) -> int:
    return int(stack.json("usage")["total"]["requests"])


async def test_a_worker_killed_mid_stream_breaks_no_stream(stack: LocalStack, client: AsyncOpenAI) -> None:
    load = Load(client)
    streams = [asyncio.create_task(load.stream(500)) for _ in range(6)]
    await asyncio.sleep(1.0)
    decoders = stack.find("dynamo.mocker", "decode", "us-east-1")
    decoders[0].kill()
    await asyncio.gather(*streams)
    assert load.errors == []
    until(lambda: len(stack.find("dynamo.mocker", "decode", "us-east-1")) == len(decoders), 30, "a new worker")


async def test_a_datacenter_whose_workers_all_died_costs_no_new_request(
        stack: LocalStack, client: AsyncOpenAI) -> None:
    load, before = Load(client), requests_recorded(stack)
    stack.kill("dynamo.mocker", "us-east-1")
    sent = await serve(load, 5.0)
    assert load.errors == []
    until(lambda: requests_recorded(stack) == before + sent, 15, "a record for each request")


async def test_a_whole_datacenter_killed_is_noticed_by_no_client(stack: LocalStack, client: AsyncOpenAI) -> None:
    load = Load(client)
    streams = [asyncio.create_task(load.stream(1500)) for _ in range(9)]
    await asyncio.sleep(1.0)
    stack.kill("dynamo.", "us-east-1")
    fresh = Load(client)
    await serve(fresh, 4.0)
    assert fresh.errors == []
    await asyncio.gather(*streams)
    assert load.errors == []
    assert load.answers == 9


async def test_the_control_plane_killed_costs_no_request_and_no_usage(
        stack: LocalStack, client: AsyncOpenAI) -> None:
    load, before = Load(client), requests_recorded(stack)
    stack.kill("meridian", "control-plane")
    sent = await serve(load, 4.0)
    assert load.errors == []
    until(lambda: stack.meridian("status").returncode == 0, 60, "a control plane")
    until(lambda: requests_recorded(stack) == before + sent, 20, "a record for each request")


async def test_valkey_killed_costs_nothing(stack: LocalStack, client: AsyncOpenAI) -> None:
    load, before = Load(client), requests_recorded(stack)
    stack.kill("valkey-server")
    sent = await serve(load, 3.0)
    assert load.errors == []
    until(lambda: requests_recorded(stack) == before + sent, 15, "a record for each request")
    until(lambda: stack.find("valkey-server"), 30, "a new Valkey")


async def test_postgres_killed_and_back_costs_no_request_and_no_usage(
        stack: LocalStack, client: AsyncOpenAI) -> None:
    load, before = Load(client), requests_recorded(stack)
    stack.kill("postgres", f"{stack.state}/postgres")
    sent = await serve(load, 4.0)
    assert load.errors == []
    until(lambda: stack.meridian("status").returncode == 0, 60, "Postgres")
    until(lambda: requests_recorded(stack) == before + sent, 30, "a record for each request")


async def test_an_agent_killed_adopts_its_processes(stack: LocalStack, client: AsyncOpenAI) -> None:
    load = Load(client)
    engine = {process.pid for process in stack.find("dynamo.", "us-east-1")}
    agent = stack.find("meridian", "agent", "us-east-1")[0]
    agent.kill()
    await serve(load, 3.0)
    assert load.errors == []
    until(lambda: [p for p in stack.find("meridian", "agent", "us-east-1") if p.pid != agent.pid], 30, "a new agent")
    stack.settle()
    assert {process.pid for process in stack.find("dynamo.", "us-east-1")} == engine


async def test_an_edge_killed_loses_no_finished_request(stack: LocalStack, client: AsyncOpenAI) -> None:
    before, load = requests_recorded(stack), Load(client)
    for _ in range(20):
        await load.short()
    stack.kill("meridian", "edge", f"MERIDIAN_PORT={stack.facts['edge_url'].split(':')[2].split('/')[0]}")
    assert load.errors == []
    until(lambda: requests_recorded(stack) >= before + 20, 30, "the records of a killed edge")
