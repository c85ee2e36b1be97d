"""Whether clients notice a drain: streams and a steady rate of requests while a datacenter is drained."""

import asyncio
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench.harness import CLOCK, Figures, percentile
from tests.bench.raw_client import Heard, chat
from tests.e2e.stack import LocalStack

NAME = "drain"
SUMMARY = "drain a datacenter under 20 streams and 20 requests/s: client-visible errors (0), streams that finish (all)"

STREAMS = 20
STREAM_TOKENS = 1_000
REQUESTS_PER_S = 20
REQUEST_TOKENS = 8
BEFORE_S, AFTER_S = 5.0, 5.0
DEADLINE_S = 180.0
REQUEST_DEADLINE_S = 90.0
DATACENTER = "us-east-1"
SETTLED_S = 10.0


@dataclass
class Seen:
    """What the clients saw."""

    streams_finished: int = 0
    streams_opened: int = 0
    requests: int = 0
    request_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


def main() -> Figures:
    """Starts a stack, loads it, drains a datacenter, looks at what was seen and at what was metered."""
    with tempfile.TemporaryDirectory(prefix="meridian-bench-") as place:
        stack = LocalStack(Path(place) / "state", datacenters=2, edges=1, replicas=1)
        try:
            stack.start()
            stack.settle()
            before = metered(stack)
            seen, drain = asyncio.run(load_and_drain(stack))
            figures = report(seen, drain, records=wait_for_records(stack, before, seen))
        finally:
            stack.stop()
    return figures


async def load_and_drain(stack: LocalStack) -> tuple[Seen, dict[str, Any]]:
    """Runs the clients around a drain, and returns what they saw and the drain as it ended."""
    load, stop = Load(stack.facts, Seen()), asyncio.Event()
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        for number in range(STREAMS):
            group.create_task(load.stream_until(stop, number))
        group.create_task(load.ask_steadily(stop))
        await asyncio.sleep(BEFORE_S)
        drain = await asyncio.to_thread(stack.json, "drain", DATACENTER, "--reason", "bench", "--wait")
        await asyncio.sleep(AFTER_S)
        stop.set()
    return load.seen, drain


@dataclass
class Load:
    """The clients."""

    facts: dict[str, Any]
    seen: Seen

    async def stream_until(self, stop: asyncio.Event, number: int) -> None:
        """One stream after another until told to stop; the last one is read to its end."""
        while not stop.is_set():
            self.seen.streams_opened += 1
            heard = await self._chat(f"stream {number}.{self.seen.streams_opened}", STREAM_TOKENS, stream=True)
            self.seen.streams_finished += heard.well
            self._note("stream", heard)

    async def ask_steadily(self, stop: asyncio.Event) -> None:
        """Requests at a steady rate, whether or not the earlier ones were answered."""
        began_s = CLOCK.monotonic_s()
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                self.seen.requests += 1
                group.create_task(self._ask(self.seen.requests))
                await asyncio.sleep(max(0.0, began_s + self.seen.requests / REQUESTS_PER_S - CLOCK.monotonic_s()))

    async def _ask(self, number: int) -> None:
        began_s = CLOCK.monotonic_s()
        heard = await self._chat(f"request {number}", REQUEST_TOKENS, stream=False)
        if heard.well:
            self.seen.request_s.append(CLOCK.monotonic_s() - began_s)
        self._note("request", heard)

    async def _chat(self, text: str, max_tokens: int, stream: bool) -> Heard:
        body: dict[str, object] = {"model": self.facts["model"], "max_tokens": max_tokens, "stream": stream,
                                   "messages": [{"role": "user", "content": text}]}
        return await chat(self.facts["edge_url"], self.facts["api_key"], body, REQUEST_DEADLINE_S)

    def _note(self, what: str, heard: Heard) -> None:
        if not heard.well:
            self.seen.errors[f"{what}: HTTP {heard.status}, whole {heard.whole}, finished {heard.finished}, "
                             f"{heard.fault or 'no error'}"] += 1


def metered(stack: LocalStack) -> int:
    """How many requests the control plane has records of."""
    return int(stack.json("usage", "--since", "1d")["total"]["requests"])


def wait_for_records(stack: LocalStack, before: int, seen: Seen) -> int:
    """Records of this bench's requests, once they are all there or no more come."""
    wanted, ends_s = seen.streams_opened + seen.requests, CLOCK.monotonic_s() + SETTLED_S
    while (found := metered(stack) - before) < wanted and CLOCK.monotonic_s() < ends_s:
        continue  # each look takes the better part of a second
    return found


def report(seen: Seen, drain: dict[str, Any], records: int) -> Figures:
    """Prints what happened, and returns it as figures."""
    operation, errors = drain["operation"], sum(seen.errors.values())
    steps = {step["name"]: step["detail"] for step in operation["steps"]}
    drain_s = operation_seconds(operation)
    print(f"drain of {DATACENTER}: {operation['state']} in {drain_s:.1f} s")
    for name, detail in steps.items():
        print(f"  {name:<14} {detail}")
    print(f"streams finished   {seen.streams_finished} of {seen.streams_opened}")
    print(f"requests answered  {len(seen.request_s)} of {seen.requests}, "
          f"median {percentile(seen.request_s, 50) * 1000:.0f} ms, p99 {percentile(seen.request_s, 99) * 1000:.0f} ms")
    print(f"usage records      {records} of {seen.streams_opened + seen.requests}")
    print(f"errors             {errors}")
    for error, times in seen.errors.most_common():
        print(f"  {times} x {error}")
    return {
        "errors": errors, "streams": seen.streams_opened, "streams_finished": seen.streams_finished,
        "requests": seen.requests, "requests_answered": len(seen.request_s), "records": records,
        "drain_s": round(drain_s, 1), "drain_state": str(operation["state"]),
        "request_p50_ms": round(percentile(seen.request_s, 50) * 1000),
        "request_p99_ms": round(percentile(seen.request_s, 99) * 1000),
        "within": errors == 0 and seen.streams_finished == seen.streams_opened and operation["state"] == "succeeded"}


def operation_seconds(operation: dict[str, Any]) -> float:
    """How long an operation took."""
    return (datetime.fromisoformat(operation["finished_at"])
            - datetime.fromisoformat(operation["created_at"])).total_seconds()
