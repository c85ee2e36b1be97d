"""`python -m engine.script.worker`: the scripted engine as a Dynamo worker. What Dynamo calls things is here only."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from typing import Any

from dynamo._core import Context
from dynamo.common.backend.engine import (
    EngineConfig,
    GenerateChunk,
    GenerateRequest,
    LLMEngine,
    LlmRegistration,
)
from dynamo.common.backend.run import run
from dynamo.common.backend.worker import WorkerConfig
from dynamo.llm.exceptions import InvalidArgument

from engine.grammar.binding import GrammarRefused
from engine.script.obey import obey
from engine.script.script import END, ScriptRefused, Task, task

BLOCK_SIZE = 16
CACHE_BLOCKS = 100_000


class ScriptedEngine(LLMEngine):
    """Says what its prompts tell it to say."""

    def __init__(self, model_dir: str, model_name: str, context_window: int) -> None:
        self._model_dir, self._model_name, self._context_window = model_dir, model_name, context_window

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple["ScriptedEngine", WorkerConfig]:
        parser = argparse.ArgumentParser()
        parser.add_argument("--model-path", required=True)
        parser.add_argument("--model-name", required=True)
        parser.add_argument("--max-model-len", required=True, type=int)
        parser.add_argument("--tool-call-parser", default="")
        parser.add_argument("--reasoning-parser", default="")
        parser.add_argument("--structural-tag", type=json.loads, default=None)
        given = parser.parse_args(argv)
        config = WorkerConfig(
            namespace=os.environ["DYN_NAMESPACE"], component="script", model_name=given.model_path,
            served_model_name=given.model_name, discovery_backend=os.environ["DYN_DISCOVERY_BACKEND"],
            request_plane=os.environ["DYN_REQUEST_PLANE"], event_plane=os.environ["DYN_EVENT_PLANE"],
            tool_call_parser=given.tool_call_parser or None, reasoning_parser=given.reasoning_parser or None,
            structural_tag=given.structural_tag, enable_kv_routing=False)
        return cls(given.model_path, given.model_name, given.max_model_len), config

    async def start(self, worker_id: int) -> EngineConfig:
        return EngineConfig(model=self._model_dir, served_model_name=self._model_name, llm=LlmRegistration(
            context_length=self._context_window, kv_cache_block_size=BLOCK_SIZE, total_kv_blocks=CACHE_BLOCKS,
            max_num_seqs=256, max_num_batched_tokens=8192))

    async def generate(self, request: GenerateRequest, context: Context) -> AsyncGenerator[GenerateChunk, None]:
        if len(request["token_ids"]) > self._context_window:
            raise InvalidArgument(f"This model's maximum context length is {self._context_window} tokens.")
        try:
            todo = task(request["token_ids"])
            obey(request, todo)
        except (ScriptRefused, GrammarRefused) as error:
            raise InvalidArgument(str(error)) from None
        async for chunk in _say(todo, request, context):
            yield chunk

    async def cleanup(self) -> None:
        """Holds nothing."""


async def _say(todo: Task, request: GenerateRequest, context: Context) -> AsyncGenerator[GenerateChunk, None]:
    left = request.get("stop_conditions", {}).get("max_tokens")
    alternatives = request.get("output_options", {}).get("logprobs")
    await asyncio.sleep(todo.script.wait_s)
    for said, id in enumerate(todo.answer_ids[todo.said:], 1):
        await asyncio.sleep(todo.script.pace_s)
        if context.is_stopped():
            yield {"token_ids": [], "index": 0, "finish_reason": "cancelled"}
            return
        chunk: GenerateChunk = {"token_ids": [id], "index": 0}
        if alternatives is not None:
            chunk |= _logprobs(id, alternatives)
        if reason := "stop" if id == END else "length" if said == left else "":
            chunk |= {"finish_reason": reason, "completion_usage": _usage(len(request["token_ids"]), said)}
        yield chunk
        if reason:
            return
        if todo.script.die_after == todo.said + said:
            os._exit(1)


def _logprobs(id: int, alternatives: int) -> GenerateChunk:
    """Made up, and the same each time for the same token."""
    found = [{"rank": rank + 1, "token_id": id + rank, "logprob": -0.1 * (id % 10 + rank)}
             for rank in range(max(alternatives, 1))]
    return {"token_ids": [id], "index": 0, "log_probs": [found[0]["logprob"]], "top_logprobs": [found]}


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens}


if __name__ == "__main__":
    run(ScriptedEngine, sys.argv[1:])
