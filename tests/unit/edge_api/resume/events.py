"""Events as a Dynamo frontend sends them, one token each."""

from typing import Any

from msgspec import json

from control_plane.contracts.deployment import EngineFacts, ReasoningFacts

THINKS = ReasoningFacts(start_ids=[90], end_ids=[91], starts_inside=True)
FACTS = EngineFacts(identity="sha", grammar_url="http://127.0.0.1:9", tool_parser="hermes", reasoning=THINKS)


def chat(ids: list[int] | None = None, finish: str | None = None, usage: dict[str, Any] | None = None,
         answer_id: str = "chatcmpl-a", **delta: Any) -> bytes:
    """An event of a chat stream; `ids` are those that came with it."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return _event({"id": answer_id, "choices": [choice], "created": 5, "model": "m", "object": "chat.completion.chunk"},
                  ids, usage)


def completion(text: str, ids: list[int] | None = None, **more: Any) -> bytes:
    """An event of a completions stream."""
    return _event({"id": "cmpl-a", "choices": [{"index": 0, "text": text, **more}], "created": 5, "model": "m",
                   "object": "text_completion"}, ids, None)


def call(index: int, name: str | None, arguments: str, call_id: str | None = None) -> dict[str, Any]:
    """A piece of a tool call."""
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    known = {"id": call_id or f"call_{index}", "type": "function"} if name else {}
    return {"index": index, **known, "function": function}


def _event(chunk: dict[str, Any], ids: list[int] | None, usage: dict[str, Any] | None) -> bytes:
    if usage is not None:
        chunk["usage"] = usage
    if ids is not None:
        chunk["nvext"] = {"completion_token_ids": ids}
    return b"data: " + json.encode(chunk) + b"\n\n"
