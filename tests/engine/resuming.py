"""Streams of every class that a client may ask for, read whole and cut, through a real edge before two clusters."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from control_plane.contracts.usage import UsageRecord
from edge_api.metering.frames import decode, scan
from edge_api.metering.outbox import segment_numbers, segment_path
from tests.bench.prepared_edge import PreparedEdge, running_edge
from tests.engine.cluster import MODEL, Cluster
from tests.engine.cutting import Heard, Then, cutting, hear
from tests.engine.scripted import COMPLETIONS, script

PAIRS = 100
AWAY_S = 1.5

Clusters = tuple[Cluster, Cluster]
TOOLS = [{"type": "function", "function": {"name": "scale", "parameters": {
    "type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}}}]
THINKING: dict[str, Any] = {"chat_template_args": {"enable_thinking": True}}
SCHEMA: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": {
    "name": "point", "schema": {"type": "object", "properties": {"x": {"type": "integer"}, "name": {"type": "string"}},
                                "required": ["x", "name"], "additionalProperties": False}}}}


def call(to: int) -> str:
    """A tool call as the model writes it."""
    return f"<tool_call>scale<arg_key>to</arg_key><arg_value>{to}</arg_value></tool_call>"


def asked(path: str, answer: str, fields: dict[str, Any], **options: object) -> dict[str, Any]:
    """A request to say this; `options` are the script's."""
    said = {"prompt": script(answer, **options)} if path == COMPLETIONS else {
        "messages": [{"role": "user", "content": script(answer, **options)}]}
    return {"model": MODEL, "max_tokens": 400, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, **said, **fields}


class Reader:
    """Reads streams through one edge, whole and cut. A datacenter that broke a stream is left alone for a second, so
    each cluster is many datacenters to the edge: one of each cluster in each of `PAIRS` regions, taken in turn."""

    def __init__(self, client: httpx.AsyncClient, edge: PreparedEdge) -> None:
        self._client, self._edge = client, edge
        self._used_s = [0.0] * PAIRS
        self._turn = 0

    async def hear(self, path: str, body: dict[str, Any], cut: int | None = None,
                   then: Then | None = None) -> Heard:
        pair, self._turn = self._turn, (self._turn + 1) % PAIRS
        await asyncio.sleep(self._used_s[pair] + AWAY_S - asyncio.get_running_loop().time())
        headers = {"authorization": f"Bearer {self._edge.key}", "x-meridian-region": f"pair-{pair}"}
        heard = await hear(self._client, self._edge.url + path, headers, body, cut, then)
        self._used_s[pair] = asyncio.get_running_loop().time()
        return heard

    def records(self) -> list[UsageRecord]:
        directory = self._edge.state_dir / "outbox"
        data = b"".join(segment_path(directory, number).read_bytes() for number in segment_numbers(directory))
        frames = [decode(stretch.payload) for stretch in scan(data, at_end=True) if stretch.payload is not None]
        return [frame for frame in frames if isinstance(frame, UsageRecord)]


@asynccontextmanager
async def reading(clusters: Clusters, state_dir: Path) -> AsyncIterator[Reader]:
    """A reader before an edge before cutters before both clusters."""
    first, second = clusters
    [facts] = first.plan.facts.values()
    async with cutting(first.url) as one, cutting(second.url) as other, httpx.AsyncClient(timeout=30) as client:
        edge = running_edge(state_dir, [one.url, other.url] * PAIRS, model=MODEL, engine=facts,
                            regions=[f"pair-{pair}" for pair in range(PAIRS) for _ in clusters])
        prepared = await asyncio.to_thread(edge.__enter__)
        try:
            yield Reader(client, prepared)
        finally:
            await asyncio.to_thread(edge.__exit__, None, None, None)
