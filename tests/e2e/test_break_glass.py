"""The control plane, Postgres and Valkey are dead, and an operator still drains a datacenter, by hand at every edge."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from tests.e2e.stack import LocalStack, until

pytestmark = pytest.mark.stack
MODEL, DATACENTER = "sim/glm-5.3", "us-east-1"
ABOVE = (("meridian", "control-plane"), ("postgres",), ("valkey-server",), ("meridian", "worker"))
TTL_S = 12


@contextmanager
def nothing_above(stack: LocalStack) -> Iterator[None]:
    """Everything above the edges is killed, and nobody starts it again before the block ends."""
    (up,) = stack.find("meridian up")[:1]
    up.suspend()
    try:
        for words in ABOVE:
            for process in stack.find(*words):
                with suppress(ProcessLookupError):  # it ended with one that was killed before
                    os.kill(process.pid, signal.SIGKILL)
        yield
    finally:
        up.resume()


async def serve(stack: LocalStack, seconds: float) -> tuple[list[str], list[str]]:
    """Requests at both edges for a while, each of a session of its own: the ids of those that were answered, and what
    went wrong."""
    answered, faults, asked = [], [], 0
    facts, ends_s = stack.facts, time.monotonic() + seconds
    headers = {"authorization": f"Bearer {facts['api_key']}"}

    async def ask(number: int, client: httpx.AsyncClient) -> None:
        body = {"model": MODEL, "messages": [{"role": "user", "content": f"{seconds} {number}"}], "max_tokens": 2}
        try:
            answer = await client.post(f"{facts['edge_urls'][number % 2]}/chat/completions", json=body, headers=headers)
        except httpx.HTTPError as error:
            faults.append(repr(error))
            return
        if answer.status_code == 200:
            answered.append(answer.headers["x-request-id"])
        else:
            faults.append(f"HTTP {answer.status_code}: {answer.text[:200]}")

    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        tasks = []
        while time.monotonic() < ends_s:
            tasks.append(asyncio.create_task(ask(asked, client)))
            asked += 1
            await asyncio.sleep(0.05)
        await asyncio.gather(*tasks)
    return answered, faults


def weights(stack: LocalStack) -> set[int]:
    """What the edges themselves say of the datacenter's weight."""
    listed = stack.json("edge", "overrides")
    return {place["weight"] for edge in listed["data"] for place in edge["datacenters"] if place["id"] == DATACENTER}


def records(stack: LocalStack, wanted: list[str]) -> list[dict[str, Any]]:
    ids = {one.removeprefix("req_") for one in wanted}
    return [record for record in stack.generations(500) if record["request_id"].replace("-", "") in ids]


async def test_an_override_needs_nothing_but_the_edges(stack: LocalStack) -> None:
    assert stack.meridian("status").returncode == 0
    _, faults = await serve(stack, 10.0)  # so that both edges hold money for more of the same
    assert faults == []
    with nothing_above(stack):
        done = await asyncio.to_thread(
            stack.json, "edge", "override", DATACENTER, "--reason", "drill", "--ttl", f"{TTL_S}s", "-y")
        assert [one["outcome"] for one in done["edges"]] == ["taken", "taken"]
        during, faults = await serve(stack, 4.0)
        assert faults == []
        until(lambda: weights(stack) == {100}, TTL_S + 5, "the end of the override")
        after, faults = await serve(stack, 3.0)
        assert faults == []
    until(lambda: stack.meridian("status").returncode == 0, 120, "a control plane")
    until(lambda: len(records(stack, during + after)) == len(during + after), 60, "a record for each request")
    assert {record["datacenter"] for record in records(stack, during)}.isdisjoint({DATACENTER})
    assert DATACENTER in {record["datacenter"] for record in records(stack, after)}
    events = until(lambda: [event for event in stack.json("audit", "list", "-n", "200")["data"]
                            if event["action"].startswith("override.")], 60, "the order in the audit log")
    (event,) = [event for event in events if event["after"]["id"] == done["id"]]
    assert (event["actor"], event["reason"], event["after"]["proved"]) == ("operator_key:local-operator", "drill", True)
    assert stack.meridian("audit", "verify").returncode == 0
