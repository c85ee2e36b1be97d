"""A client of the edge does not notice that a datacenter broke its stream: real edge, real frontends, every cut."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.resuming import SCHEMA, THINKING, TOOLS, Clusters, asked, call, reading
from tests.engine.scripted import CHAT, COMPLETIONS

CALL = call(3)
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
    "json_schema": (CHAT, '{"x": 1, "name": "漢 z"}', SCHEMA),
    "reasoning, then json_schema": (CHAT, 'hm</think>{"x": 12, "name": "z"}', {**SCHEMA, **THINKING}),
    "logprobs": (CHAT, "Hello there, it is.", {"logprobs": True, "top_logprobs": 2}),
}


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_stream_reads_the_same_wherever_it_is_cut(datacenters: Clusters, tmp_path: Path, kind: str) -> None:
    path, answer, fields = STREAMS[kind]
    [facts] = datacenters[0].plan.facts.values()
    if "response_format" in fields and facts.grammar_url is None:
        pytest.skip("the grammar service's environment is not installed")
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
