"""Shifts and rollouts of the local stack while clients are served."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.e2e.stack import LocalStack
from tests.e2e.test_operations import MODEL, Load

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

FIRST, SECOND = "us-east-1", "eu-north-1"


@asynccontextmanager
async def under_load(load: Load) -> AsyncIterator[None]:
    """Short requests all the time, and streams that last longer than a cell is drained for."""
    ends, tasks = asyncio.Event(), []

    async def ask() -> None:
        while not ends.is_set():
            tasks.append(asyncio.create_task(load.short()))
            if len(tasks) % 40 == 1:
                tasks.append(asyncio.create_task(load.stream(200)))
            await asyncio.sleep(0.05)

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        ends.set()
        await asking
        await asyncio.gather(*tasks)


def specification(stack: LocalStack, directory: Path, **engine: Any) -> Path:
    """A file with the deployments' engine and pools, changed."""
    found = next(one for one in stack.json("topology", "show")["deployments"] if one["model"] == MODEL)
    path = directory / "specification.json"
    path.write_text(json.dumps({"engine": found["engine"] | engine, "pools": found["pools"]}))
    return path


async def rolled_out(stack: LocalStack, path: Path, *options: str) -> tuple[int, str]:
    done = await asyncio.to_thread(
        stack.meridian, "rollout", MODEL, "--file", str(path), "--reason", "test", "--wait", "-y", "--watch", "2s",
        *options, deadline_s=300)
    return done.returncode, done.stdout + done.stderr


def engines(stack: LocalStack) -> list[Any]:
    return [one["engine"] for one in stack.json("topology", "show")["deployments"]]


async def test_a_rollout_under_load_shows_clients_nothing(stack: LocalStack, client: AsyncOpenAI,
                                                          tmp_path: Path) -> None:
    load = Load(client)
    wanted = specification(stack, tmp_path, cache={"block_size": 32, "blocks_per_replica": 16_384})
    async with under_load(load):
        code, said = await rolled_out(stack, wanted)
    assert code == 0, said
    assert load.errors == []
    assert load.answers > 100
    assert all(engine["cache"]["block_size"] == 32 for engine in engines(stack))
    stack.settle()


async def test_a_specification_that_the_engine_refuses_is_rolled_back_with_its_words(
        stack: LocalStack, client: AsyncOpenAI, tmp_path: Path) -> None:
    load, before = Load(client), engines(stack)
    wanted = specification(stack, tmp_path, cache={"block_size": 33})
    async with under_load(load):
        code, said = await rolled_out(stack, wanted)
    assert code == 5, said
    assert "refused by the engine: engine.cache.block_size: must be a power of two" in said
    assert load.errors == []
    assert engines(stack) == before
    stack.settle()


@pytest.mark.slow
async def test_an_engine_that_is_ready_and_never_answers_is_rolled_back_by_probes(
        stack: LocalStack, client: AsyncOpenAI, tmp_path: Path) -> None:
    load, before = Load(client), engines(stack)
    wanted = specification(stack, tmp_path, timing={"speedup_ratio": 1e-9})
    async with under_load(load):
        code, said = await rolled_out(stack, wanted)
    assert code == 5, said
    assert "answered no probe: the frontend gave no answer within 15.0 s" in said
    assert load.errors == []
    assert engines(stack) == before
    stack.settle()


@pytest.mark.slow
async def test_an_engine_that_answers_with_errors_is_rolled_back_by_probes(
        stack: LocalStack, client: AsyncOpenAI, tmp_path: Path) -> None:
    """The scripted engine refuses every prompt without a script."""
    load, before = Load(client), engines(stack)
    wanted = tmp_path / "specification.yaml"
    wanted.write_text("engine: {kind: script}\npools:\n- {role: aggregated, replicas: 1}\n")
    async with under_load(load):
        code, said = await rolled_out(stack, wanted, "--in", SECOND)
    assert code == 5, said
    assert "answered no probe: the frontend answered " in said
    assert load.errors == []
    assert engines(stack) == before
    stack.settle()


async def test_a_shift_moves_new_requests(stack: LocalStack, client: AsyncOpenAI) -> None:
    load = Load(client)
    arguments = ["shift", MODEL, "--percent", "100", "--step", "50", "--interval", "1s", "--reason", "test", "--wait",
                 "-y"]
    async with under_load(load):
        done = await asyncio.to_thread(stack.meridian, *arguments, "--from", FIRST, "--to", SECOND)
        assert done.returncode == 0, done.stdout + done.stderr
    ingress = stack.facts["datacenters"][0]["ingress_url"]
    served = stack.gauge(ingress, "dynamo_frontend_requests_total")
    for _ in range(20):
        await load.short()
    assert stack.gauge(ingress, "dynamo_frontend_requests_total") == served
    undone = await asyncio.to_thread(stack.meridian, "shift", MODEL, "--from", SECOND, "--to", FIRST, "--percent", "50",
                                     "--step", "50", "--interval", "0s", "--reason", "test over", "--wait", "-y")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert load.errors == []
