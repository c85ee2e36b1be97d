"""A client of the edge does not notice that a datacenter broke its stream: real edge, real frontends, every cut."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from control_plane.contracts.usage import UsageRecord
from edge_api.metering.frames import decode, scan
from edge_api.metering.outbox import segment_numbers, segment_path
from tests.bench.prepared_edge import PreparedEdge, running_edge
from tests.engine.cluster import MODEL, Cluster
from tests.engine.cutting import Heard, cutting, hear
from tests.engine.scripted import CHAT, COMPLETIONS, script

Clusters = tuple[Cluster, Cluster]
CALL = "<tool_call>scale<arg_key>to</arg_key><arg_value>3</arg_value></tool_call>"
TOOLS = [{"type": "function", "function": {"name": "scale", "parameters": {
    "type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}}}]
THINKING: dict[str, Any] = {"chat_template_args": {"enable_thinking": True}}
SCHEMA: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": {
    "name": "point", "schema": {"type": "object", "properties": {"x": {"type": "integer"}, "name": {"type": "string"}},
                                "required": ["x", "name"], "additionalProperties": False}}}}

STREAMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ascii": (CHAT, "Hello there, it is a day.", {}),
    "emoji and CJK": (CHAT, "日本 and 🎉 ok", {}),
    "a completion": (COMPLETIONS, "It is 🎉 so.", {}),
    "reasoning": (CHAT, "so it 是</think>yes it is", THINKING),
    "tools": (CHAT, f"a b {CALL}\n{CALL} c", {"tools": TOOLS}),
    "a required call": (CHAT, f"{CALL} b", {"tools": TOOLS, "tool_choice": "required"}),
    "reasoning, then tools": (CHAT, f"hm</think>a {CALL} b", {"tools": TOOLS, **THINKING}),
    "stop strings": (CHAT, "go there, y is STOP here", {"stop": ["re, x", "STOP"]}),
    "a limit": (CHAT, "Hello there, it is a day.", {"max_tokens": 6}),
    "logprobs": (CHAT, "Hello there, it is.", {"logprobs": True, "top_logprobs": 2}),
}


def asked(path: str, answer: str, fields: dict[str, Any]) -> dict[str, Any]:
    said = {"prompt": script(answer)} if path == COMPLETIONS else {
        "messages": [{"role": "user", "content": script(answer)}]}
    return {"model": MODEL, "max_tokens": 400, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, **said, **fields}


@contextmanager
def edge_before(urls: list[str], clusters: Clusters, state_dir: Path) -> Iterator[PreparedEdge]:
    """An edge that knows what the clusters' engine says of itself."""
    [facts] = clusters[0].plan.facts.values()
    with running_edge(state_dir, urls, model=MODEL, engine=facts) as edge:
        yield edge


class Reader:
    """Reads streams through one edge, whole and cut."""

    def __init__(self, client: httpx.AsyncClient, edge: PreparedEdge) -> None:
        self._client, self._edge = client, edge

    async def hear(self, path: str, body: dict[str, Any], cut: int | None = None) -> Heard:
        return await hear(self._client, self._edge.url, self._edge.key, path, body, cut)

    def records(self) -> list[UsageRecord]:
        directory = self._edge.state_dir / "outbox"
        data = b"".join(segment_path(directory, number).read_bytes() for number in segment_numbers(directory))
        frames = [decode(stretch.payload) for stretch in scan(data, at_end=True) if stretch.payload is not None]
        return [frame for frame in frames if isinstance(frame, UsageRecord)]


@asynccontextmanager
async def reading(clusters: Clusters, state_dir: Path) -> AsyncIterator[Reader]:
    """A reader before an edge before cutters before both clusters."""
    first, second = clusters
    async with cutting(first.url) as one, cutting(second.url) as other, httpx.AsyncClient(timeout=30) as client:
        edge = edge_before([one.url, other.url], clusters, state_dir)
        prepared = await asyncio.to_thread(edge.__enter__)
        try:
            yield Reader(client, prepared)
        finally:
            await asyncio.to_thread(edge.__exit__, None, None, None)


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_stream_reads_the_same_wherever_it_is_cut(datacenters: Clusters, tmp_path: Path, kind: str) -> None:
    path, answer, fields = STREAMS[kind]
    body = asked(path, answer, fields)
    async with reading(datacenters, tmp_path / "edge") as reader:
        whole = await reader.hear(path, body)
        assert (whole.answer["done"], whole.answer["errors"]) == (True, [])
        for cut in range(1, len(whole.events) + 1):
            assert (cut, (await reader.hear(path, body, cut)).answer) == (cut, whole.answer)
        records = reader.records()
    assert len(records) == len(whole.events) + 1
    assert {record.completion_tokens for record in records} == {whole.answer["completion_tokens"]}
    assert {record.prompt_tokens for record in records} == {whole.answer["prompt_tokens"]}
    assert sum(record.resumes for record in records) > 0
