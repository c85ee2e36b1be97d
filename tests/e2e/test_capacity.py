"""The planner on the whole stack: replicas come and go while clients are served, and nothing else is touched."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from tests.e2e.stack import LocalStack, until
from tests.e2e.test_operations import Load

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(600)]

DATACENTER = "us-east-1"
DEPLOYMENT = f"{DATACENTER}-a-glm"


@pytest.fixture
def planned(stack: LocalStack, tmp_path: Path) -> Iterator[LocalStack]:
    """The stack with a planner that carries out its plans; afterwards every pool is as it was declared."""
    declared = tmp_path / "topology.json"
    declared.write_text(json.dumps(stack.json("topology", "show")))
    at_least(stack, 2)  # an idle stack's planner shrinks at its first turn what it long saw unused
    stack.json("capacity", "mode", "auto", "--reason", "test")
    yield stack
    stack.json("capacity", "mode", "advise", "--reason", "test over")
    stack.json("capacity", "bound", DEPLOYMENT, "decode", "--reason", "test over")
    stack.json("topology", "apply", "-f", str(declared))
    until(lambda: decoders(stack) == (2, 2), 120, "the declared replicas")
    stack.settle()


def decoders(stack: LocalStack) -> tuple[int | None, int]:
    """Ready and wanted decode workers of the deployment."""
    return next((pool["ready"], pool["replicas"]) for model in stack.json("capacity")["models"]
                for place in model["places"] if place["deployment"] == DEPLOYMENT
                for pool in place["pools"] if pool["role"] == "decode")


def workers(stack: LocalStack) -> set[int]:
    """The processes of the deployment's workers."""
    return {process.pid for process in stack.find("dynamo.mocker", f"DYN_NAMESPACE={DEPLOYMENT}")}


def at_least(stack: LocalStack, replicas: int) -> None:
    stack.json("capacity", "bound", DEPLOYMENT, "decode", "--min", str(replicas), "--reason", "test")


async def test_replicas_come_and_go_and_no_stream_breaks(planned: LocalStack, client: AsyncOpenAI) -> None:
    before = workers(planned)
    at_least(planned, 3)
    await asyncio.to_thread(until, lambda: decoders(planned) == (3, 3), 180, "a third decode worker")
    grown = workers(planned)
    assert before < grown

    load = Load(client)
    at_least(planned, 1)
    streams = []
    while decoders(planned)[1] == 3:
        streams += [asyncio.create_task(load.stream(400)) for _ in range(2)]
        await asyncio.sleep(2)
    await asyncio.to_thread(until, lambda: len(workers(planned)) < len(grown), 120, "workers to go")
    await asyncio.gather(*streams)
    assert load.errors == []
    assert load.answers == len(streams) > 0
    assert workers(planned) < grown

    steps = [event for event in planned.json("audit", "-n", "50")["data"] if event["action"] == "capacity.step"
             and event["target"] == f"deployment:{DEPLOYMENT}"]
    assert ["fewer than its minimum 3" in step["reason"] for step in steps] == [False, True]
    assert "used, under 50%" in steps[0]["reason"]
