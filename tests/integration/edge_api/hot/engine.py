"""An engine that says the same answer in every datacenter, and goes on with it from any token: what a stream needs to
move. Around it, faults: where a stream is cut, what the prompt's question gets.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from control_plane.contracts.deployment import EngineFacts, ReasoningFacts
from tests.integration.edge_api.hot.datacenter import DONE, Upcall, usage

PROMPT = [11, 12, 13, 14]
THINKS = ReasoningFacts(start_ids=[90], end_ids=[91], starts_inside=True)
FACTS = EngineFacts(identity="sha", tool_parser="hermes")
Delta = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What one event of the answer brings: ids, and what of it the client sees."""

    ids: list[int]
    delta: Delta


def spoken(*texts: str) -> list[Said]:
    """One token a text; an empty one is withheld."""
    return [Said([100 + at], {"content": text} if text else {}) for at, text in enumerate(texts)]


@dataclass
class Engine:
    """`answer` is what it says; `cut_after` events of the first request its connection is reset, by `cut`. `seen` are
    the bodies of streams that were asked for, `asked` how often the prompt's ids were."""

    answer: list[Said]
    answer_id: str = "chatcmpl-a"
    finish: str = "stop"
    cut_after: int | None = None
    cut: Callable[[Upcall], Any] = Upcall.reset
    pause_s: float = 0.0
    asked: int = 0

    def __post_init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    async def __call__(self, call: Upcall) -> None:
        body = call.body
        if "annotations" in body.get("nvext", {}):
            self.asked += 1
            await call.begin_stream()
            await call.send(b'event: token_ids\n: "%b"\n\n' % json.dumps(PROMPT).encode())
            await call.until_abandoned()
            return
        self.seen.append(body)
        given = body["nvext"].get("token_data") or body.get("prompt")
        delivered = given[len(PROMPT):] if isinstance(given, list) else []
        await self._stream(call, delivered, body)

    async def _stream(self, call: Upcall, delivered: list[int], body: dict[str, Any]) -> None:
        left = list(self.answer)
        while delivered:
            said = left.pop(0)
            assert delivered[:len(said.ids)] == said.ids, "it is given another answer than its own"
            delivered = delivered[len(said.ids):]
        await call.begin_stream()
        count = 0
        for at, said in enumerate(left):
            if at == self.cut_after:
                break
            count += len(said.ids)
            await call.send(self._event(said, body, count, first=at == 0))
            await asyncio.sleep(self.pause_s)
        if self.cut_after is not None:
            self.cut_after = None
            outcome = self.cut(call)
            if asyncio.iscoroutine(outcome):
                await outcome
            return
        end = self._event(Said([2], {}), body, count + 1, finish=self.finish)
        await call.send(end, self._usage(body, count + 1), DONE)
        await call.end_stream()

    def _event(self, said: Said, body: dict[str, Any], count: int, first: bool = False, finish: str | None = None
               ) -> bytes:
        if "prompt" in body:
            choice: dict[str, Any] = {"index": 0, "text": said.delta.get("content", "")}
        else:
            choice = {"index": 0, "delta": {**({"role": "assistant"} if first else {}), **said.delta}}
        if finish:
            choice["finish_reason"] = finish
        return self._chunk({"choices": [choice], "usage": usage(self._prompt(body), count, 3),
                            "nvext": {"completion_token_ids": said.ids}})

    def _usage(self, body: dict[str, Any], count: int) -> bytes:
        return self._chunk({"choices": [], "usage": usage(self._prompt(body), count, 3)})

    def _chunk(self, more: dict[str, Any]) -> bytes:
        head = {"id": self.answer_id, "created": 5, "model": "sim/glm-5.3", "object": "chat.completion.chunk"}
        return b"data: " + json.dumps({**head, **more}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"

    def _prompt(self, body: dict[str, Any]) -> int:
        given = body["nvext"].get("token_data") or body.get("prompt")
        return len(given) if isinstance(given, list) else len(PROMPT)


def reads(events: list[Any]) -> dict[str, Any]:
    """What a client made of a stream: its text by kind, its calls, how it ended, and the identity of its chunks."""
    chunks = [event for event in events if isinstance(event, dict)]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    deltas = [choice.get("delta", choice) for choice in choices]
    return {
        "ids": {chunk["id"] for chunk in chunks},
        "roles": sum("role" in delta for delta in deltas),
        "content": "".join(delta.get("content") or delta.get("text") or "" for delta in deltas),
        "reasoning": "".join(delta.get("reasoning_content") or "" for delta in deltas),
        "calls": [call for delta in deltas for call in delta.get("tool_calls") or ()],
        "finish": [choice["finish_reason"] for choice in choices if choice.get("finish_reason")],
        "usage": [chunk["usage"] for chunk in chunks if chunk.get("usage")],
        "done": events[-1:] == ["[DONE]"],
    }
