"""Calls that a real frontend's parser made of a model's words, judged by a running edge, asked by real clients."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.engine.cluster import MODEL, Cluster
from tests.engine.scripted import script
from tests.integration.edge_api.test_judging import counted
from tests.integration.edge_api.test_standalone import KEY, AloneEdge
from tests.integration.edge_api.waiting import until

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False,
          "required": ["text"], "not": {"properties": {"text": {"const": "no"}}}}  # which grammars pass over
TOOL: Any = {"type": "function", "function": {"name": "write", "parameters": SCHEMA}}
NASTY = 'if a < b && c > "d" {\n\tsay(\'é 😀 \\n &lt;\');\n}'


def called(text: str) -> str:
    """The model's words for a call."""
    return f"<tool_call>write<arg_key>text</arg_key><arg_value>{text}</arg_value></tool_call>"


@pytest.fixture
async def edge(tmp_path: Path, datacenters: tuple[Cluster, Cluster]) -> AsyncIterator[AloneEdge]:
    edge = AloneEdge(tmp_path, int(datacenters[0].url.rpartition(":")[2]))
    try:
        await edge.start()
        yield edge
    finally:
        await edge.stop(signal.SIGKILL)


async def test_the_calls_of_a_real_parser_are_judged_once_each(edge: AloneEdge) -> None:
    fine, wrong = called(NASTY), called("no")
    chat = openai.AsyncOpenAI(base_url=f"{edge.url}/v1", api_key=KEY, max_retries=0)
    messages = anthropic.AsyncAnthropic(base_url=edge.url, auth_token=KEY, max_retries=0)
    for said in ("just words", fine, f"{fine}\n{wrong}"):
        asked: Any = [{"role": "user", "content": script(said)}]
        whole = await chat.chat.completions.create(model=MODEL, messages=asked, tools=[TOOL], service_tier="flex")
        assert whole.service_tier == "default"
        stream = await chat.chat.completions.create(
            model=MODEL, messages=asked, tools=[TOOL], service_tier="flex", stream=True,
            stream_options={"include_usage": True})
        assert {chunk.service_tier async for chunk in stream} == {"default"}
        told = await messages.messages.create(
            model=MODEL, max_tokens=400, messages=asked, tools=[{"name": "write", "input_schema": SCHEMA}])
        assert told.usage.service_tier == "standard"
        for call in whole.choices[0].message.tool_calls or ():
            assert call.type == "function"
            assert json.loads(call.function.arguments)["text"] in (NASTY, "no")

    async def are_counted() -> bool:
        return await counted(edge) == {"fine": 3, "wrong": 3}

    await until(are_counted)
    await chat.close()
    await messages.close()
