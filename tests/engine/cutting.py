"""Cuts streams on their way from a datacenter, and reads what a client of the edge made of them."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

READ_BYTES = 65_536
Then = tuple[int, Callable[[int], None]]
ATTEMPT = re.compile(rb"x-request-id: [0-9a-f-]+\.(\S+)\r\n")
CUT = re.compile(rb'"user":\s*"cut (\d+)"')


class Cutter:
    """A TCP proxy before a datacenter. The first attempt of a request that says `"user": "cut 7"` is reset after its
    seventh event; everything else passes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname or "", parts.port or 0)
        self.port, self.cuts = 0, 0
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        there, to = await asyncio.open_connection(*self._to)
        left: list[int] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._up(reader, to, left))
                group.create_task(self._down(there, writer, left))
        except* (ConnectionError, _Over):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()
            to.transport.abort()

    def close(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, left: list[int]) -> None:
        said = b""
        while data := await reader.read(READ_BYTES):
            said = (said + data)[-2 * READ_BYTES:]
            attempts = list(ATTEMPT.finditer(said))  # a probe is none
            found = CUT.search(said, attempts[-1].end()) if attempts else None
            if found and attempts[-1][1] == b"1":
                left[:] = [int(found[1])]
            to.write(data)
            await to.drain()
        raise _Over

    async def _down(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]) -> None:
        while data := await there.read(READ_BYTES):
            if left:
                ends = [match.end() for match in re.finditer(rb"\n\n", data)]
                if len(ends) >= left[0]:
                    writer.write(data[:ends[left[0] - 1]])
                    await writer.drain()
                    self.cuts += 1
                    raise _Over
                left[0] -= len(ends)
            writer.write(data)
            await writer.drain()
        raise _Over


class _Over(Exception):
    """One side is done."""


@asynccontextmanager
async def cutting(url: str) -> AsyncIterator[Cutter]:
    """A cutter that listens."""
    cutter = Cutter(url)
    listener = await asyncio.start_server(cutter.handle, "127.0.0.1", 0)
    cutter.port = listener.sockets[0].getsockname()[1]
    try:
        yield cutter
    finally:
        listener.close()
        cutter.close()


@dataclass
class Heard:
    """One stream as its client read it. `longest_gap_s` is between two of its events."""

    events: list[dict[str, Any]] = field(default_factory=list)
    is_done: bool = False
    longest_gap_s: float = 0.0

    @property
    def answer(self) -> dict[str, Any]:
        """All that must not depend on where the stream was cut."""
        choices = [choice for event in self.events for choice in event["choices"]]
        deltas = [choice.get("delta", choice) for choice in choices]
        usage: dict[str, Any] = next((event["usage"] for event in self.events if event.get("usage")), {})
        details = usage.get("completion_tokens_details") or {}
        calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
        return {
            "content": "".join(delta.get("content") or delta.get("text") or "" for delta in deltas),
            "reasoning": "".join(delta.get("reasoning_content") or "" for delta in deltas),
            "calls": [(call["index"], call["function"]["name"], call["function"]["arguments"]) for call in calls],
            "call_ids": len({call["id"] for call in calls}),
            "roles": sum("role" in delta for delta in deltas),
            "finish": [choice["finish_reason"] for choice in choices if choice.get("finish_reason")],
            "logprobs": sum(len((choice.get("logprobs") or {}).get("content") or ()) for choice in choices),
            "identities": len({(event["id"], event["created"], event["model"]) for event in self.events}),
            "prompt_tokens": usage.get("prompt_tokens"), "completion_tokens": usage.get("completion_tokens"),
            "reasoning_tokens": details.get("reasoning_tokens"),
            "errors": [event["error"]["code"] for event in self.events if event.get("error")],
            "done": self.is_done,
        }


async def hear(client: httpx.AsyncClient, url: str, headers: dict[str, str], body: dict[str, Any],
               cut: int | None = None, then: Then | None = None) -> Heard:
    """Reads one stream through the edge, cut after so many events of its first datacenter. `then`: after so many events
    something else happens, to the cluster of the number that is given."""
    heard, last_s = Heard(), time.monotonic()
    asked = body | ({"user": f"cut {cut}"} if cut else {})
    async with client.stream("POST", url, json=asked, headers=headers) as response:
        if response.status_code != 200:
            raise AssertionError(f"{response.status_code}: {(await response.aread())[:500]!r}")
        async for line in response.aiter_lines():
            heard.is_done |= line == "data: [DONE]"
            if line.startswith("data: {"):
                heard.events.append(json.loads(line.removeprefix("data: ")))
                now_s = time.monotonic()
                if len(heard.events) > 1:
                    heard.longest_gap_s = max(heard.longest_gap_s, now_s - last_s)
                last_s = now_s
                if then and len(heard.events) == then[0]:
                    then[1](int(response.headers["x-meridian-datacenter"].rpartition("-")[2]) % 2)
    return heard
