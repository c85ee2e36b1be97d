"""Asks scripted clusters, and goes on with an answer in another cluster than the one where it began."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.engine.cluster import MODEL

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
IDS = {"extra_fields": ["completion_token_ids"]}


def script(answer: str, **options: object) -> str:
    """A message that makes the scripted engine give this answer."""
    return "Please say this. SCRIPT " + json.dumps({"answer": answer, **options})


@dataclass
class Said:
    """A stream that was read to its end. `events` are its chunks, `prompt_ids` what the annotation said."""

    status: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    prompt_ids: list[int] = field(default_factory=list)
    is_done: bool = False

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [choice.get("delta", choice) for event in self.events for choice in event.get("choices", [])]

    @property
    def text(self) -> str:
        return "".join(delta.get("content") or delta.get("text") or "" for delta in self.deltas)

    @property
    def reasoning(self) -> str:
        return "".join(delta.get("reasoning_content") or "" for delta in self.deltas)

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Name and arguments of each call."""
        return [(call["function"]["name"], call["function"]["arguments"])
                for delta in self.deltas for call in delta.get("tool_calls") or []]

    @property
    def ids(self) -> list[int]:
        return [id for event in self.events for id in _ids(event)]

    @property
    def finish_reason(self) -> str | None:
        found = [choice.get("finish_reason") for event in self.events for choice in event.get("choices", [])]
        return next((reason for reason in reversed(found) if reason), None)

    @property
    def usage(self) -> dict[str, Any]:
        found: dict[str, Any] = self.events[-1]["usage"]
        return found

    def committed(self, events: int) -> list[int]:
        """The ids that the first so many events settle: those up to the last event that showed something."""
        ids: list[int] = []
        pending: list[int] = []
        for event in self.events[:events]:
            pending += _ids(event)
            if any(_shows(choice) for choice in event.get("choices", [])):
                ids += pending
                pending = []
        return ids


def body(message: str, path: str = CHAT, **fields: object) -> dict[str, Any]:
    """A streamed request as the edge sends it."""
    asked: dict[str, Any] = {"prompt": message} if path == COMPLETIONS else {
        "messages": [{"role": "user", "content": message}]}
    return {"model": MODEL, "max_tokens": 400, "stream": True, "nvext": IDS, **asked,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}} | fields


def say(url: str, message: str, path: str = CHAT, **fields: object) -> Said:
    """Reads a whole answer."""
    read = Said()
    with httpx.stream("POST", url + path, json=body(message, path, **fields), timeout=30) as response:
        read.status = response.status_code
        for line in response.iter_lines():
            if line.startswith(': "['):
                read.prompt_ids = json.loads(json.loads(line.removeprefix(": ")))
            elif line.startswith("data: {"):
                read.events.append(json.loads(line.removeprefix("data: ")))
            read.is_done |= line == "data: [DONE]"
    return read


def prompt_ids(url: str, message: str, path: str = CHAT, **fields: object) -> list[int]:
    """The ids of a request's prompt, asked for as the edge does: read and hung up."""
    asked = body(message, path, **fields) | {"nvext": {**IDS, "annotations": ["token_ids"]}}
    with httpx.stream("POST", url + path, json=asked, timeout=30) as response:
        for line in response.iter_lines():
            if line.startswith(': "['):
                found: list[int] = json.loads(json.loads(line.removeprefix(": ")))
                return found
    raise AssertionError("no prompt ids came")


def go_on(url: str, message: str, delivered: list[int], path: str = CHAT, **fields: object) -> Said:
    """The rest of an answer of which these ids are settled. `fields` are those of the continuation."""
    given = fields.pop("prompt_ids", None)
    first = given if isinstance(given, list) else prompt_ids(url, message, path, **fields)
    return say(url, message, path, nvext={**IDS, "token_data": first + delivered}, **fields)


def settled_text(whole: Said, ids: list[int]) -> str:
    """The text that was shown with these ids, which end where an event settled them."""
    left, text = len(ids), ""
    for event in whole.events[:-1]:
        if left <= 0:
            break
        left -= len(_ids(event))
        text += Said(events=[event]).text
    return text


def seams(read: Said) -> list[list[int]]:
    """The ids that are settled after each event but the last ones, each once."""
    found: list[list[int]] = []
    for events in range(len(read.events) - 1):
        ids = read.committed(events)
        if ids not in found:
            found.append(ids)
    return found


def _ids(event: dict[str, Any]) -> list[int]:
    found: list[int] = event.get("nvext", {}).get("completion_token_ids") or []
    return found


def _shows(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta", choice)
    return any(delta.get(name) for name in ("content", "reasoning_content", "text", "tool_calls"))
