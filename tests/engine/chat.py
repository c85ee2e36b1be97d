"""Asks a frontend as the edge does, and reads what comes."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.engine.cluster import MODEL

METERED = {
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "nvext": {"extra_fields": ["completion_token_ids"]},
}


@dataclass
class Stream:
    """A finished stream. `token_ids` are all that were delivered, `lines` the raw events."""

    lines: list[str] = field(default_factory=list)
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    error: dict[str, Any] | None = None


def ask(url: str, content: str = "hello", *, headers: dict[str, str] | None = None, **fields: object) -> httpx.Response:
    """A unary request."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 5} | fields
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)


def stream(url: str, *, max_tokens: int, session: str = "",
           on_event: Callable[[int], None] = lambda _: None) -> Stream:
    """A metered stream, read to its end; `on_event` is called with the number of each event."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": max_tokens,
            "stream": True, **METERED}
    read = Stream()
    headers = {"x-dynamo-session-id": session} if session else {}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if line:
                read.lines.append(line)
                on_event(len(read.lines))
    for line in read.lines:
        if line.startswith("data: {"):
            _take(read, json.loads(line.removeprefix("data: ")))
    return read


@contextmanager
def streams(url: str, count: int, max_tokens: int) -> Iterator[list[Future[Stream]]]:
    """Several sessions' streams at once; the body runs once each has delivered its tenth event."""
    started: list[Future[None]] = [Future() for _ in range(count)]

    def open_one(at: int) -> Stream:
        return stream(url, max_tokens=max_tokens, session=f"session-{at}",
                      on_event=lambda number: started[at].set_result(None) if number == 10 else None)

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(open_one, at) for at in range(count)]
        for begun in started:
            begun.result(20)
        yield futures


def _take(read: Stream, event: dict[str, Any]) -> None:
    read.error = event.get("error", read.error)
    read.usage = event.get("usage", read.usage)
    read.token_ids += event.get("nvext", {}).get("completion_token_ids", [])
    for choice in event.get("choices", []):
        read.text += choice["delta"].get("content") or ""
        read.finish_reason = choice["finish_reason"] or read.finish_reason
