"""A client of the edge does not notice that a datacenter broke its stream: real edge, real frontends, every cut."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from control_plane.contracts.deployment import PoolRole
from tests.engine.cutting import Heard
from tests.engine.resuming import SCHEMA, THINKING, TOOLS, Clusters, Reader, asked, call, reading
from tests.engine.scripted import CHAT, COMPLETIONS

CALL = call(3)
FRONTEND = "frontend"
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
    "sampled, with stop strings": (CHAT, "go there, y 日 STOP x", {"stop": ["re, x", "STOP"], "temperature": 0.7}),
    "json_schema": (CHAT, '{"x": 1, "name": "漢 z"}', SCHEMA),
    "reasoning, then json_schema": (CHAT, 'hm</think>{"x": 12, "name": "z"}', {**SCHEMA, **THINKING}),
    "logprobs": (CHAT, "Hello there, it is.", {"logprobs": True, "top_logprobs": 2}),
}


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_stream_reads_the_same_wherever_it_is_cut(datacenters: Clusters, tmp_path: Path, kind: str) -> None:
    path, answer, fields = STREAMS[kind]
    [facts] = datacenters[0].plan.facts.values()
    if ("response_format" in fields or "temperature" in fields) and facts.grammar_url is None:
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


LONG = "Hello there, it is a long day, and it goes on for a while."


@pytest.fixture
def whole_again(datacenters: Clusters) -> Iterator[Clusters]:
    """Both clusters, put right afterwards whatever a test does to them."""
    yield datacenters
    for each in datacenters:
        if each.running[FRONTEND].poll() is None:
            each.signal(FRONTEND, signal.SIGCONT)
        each.start()
        each.wait_model()


async def read_while(reader: Reader, happens: Callable[[int], None]) -> Heard:
    """Reads a slow stream; after a few events something happens to its datacenter, whose number is given."""
    body = asked(CHAT, LONG, {}, pace_s=0.02)
    return await reader.hear(CHAT, body, then=(12, happens))


async def test_a_killed_datacenter_is_not_noticed(whole_again: Clusters, tmp_path: Path) -> None:
    async with reading(whole_again, tmp_path / "edge") as reader:
        heard = await read_while(reader, lambda number: whole_again[number].kill(FRONTEND))
    assert (heard.answer["content"], heard.answer["done"]) == (LONG, True)
    assert heard.longest_gap_s < 1.0


async def test_a_datacenter_that_stands_still_is_left_once_probes_say_so(whole_again: Clusters, tmp_path: Path) -> None:
    async with reading(whole_again, tmp_path / "edge") as reader:
        heard = await read_while(reader, lambda number: whole_again[number].signal(FRONTEND, signal.SIGSTOP))
        [record] = reader.records()
    assert (heard.answer["content"], heard.answer["done"]) == (LONG, True)
    assert heard.longest_gap_s < 8.0
    assert record.resumes == 1


async def test_a_worker_that_dies_with_no_other_one_left_is_not_noticed(whole_again: Clusters, tmp_path: Path) -> None:
    async with reading(whole_again, tmp_path / "edge") as reader:
        heard = await read_while(reader, lambda number: whole_again[number].kill(
            *whole_again[number].workers(PoolRole.AGGREGATED)))
        [record] = reader.records()
    assert (heard.answer["content"], heard.answer["done"]) == (LONG, True)
    assert (record.resumes, len({attempt.datacenter_id for attempt in record.attempts})) == (1, 2)
