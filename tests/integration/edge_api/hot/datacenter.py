"""A datacenter's frontend in the hands of a test: real sockets, Dynamo's shapes, and whatever fault the test scripts.

A script is a coroutine function that gets an `Upcall` and answers it in any way it likes.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Upcall:
    """One request that came in, and the connection to answer on."""

    path: str
    headers: dict[str, str]
    raw: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    async def answer(self, status: int, body: bytes | dict[str, Any], headers: str = "") -> None:
        """A whole answer with a length."""
        data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        self.writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}"
                          f"content-length: {len(data)}\r\n\r\n".encode() + data)
        await self.writer.drain()

    async def begin_stream(self) -> None:
        """The head of a stream."""
        self.writer.write(STREAM_HEAD)
        await self.writer.drain()

    async def send(self, *events: bytes) -> None:
        """One chunk, with all of these events in it."""
        data = b"".join(events)
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def end_stream(self) -> None:
        """The end of the chunked body."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def reset(self) -> None:
        """Drops the connection."""
        self.writer.transport.abort()

    async def until_abandoned(self, patience_s: float = 5.0) -> None:
        """Waits until the edge closes the connection.

        Raises:
            TimeoutError: it did not.
        """
        async with asyncio.timeout(patience_s):
            while await self.reader.read(65536):
                pass


Script = Callable[[Upcall], Awaitable[None]]


@dataclass(slots=True)
class Datacenter:
    """A listening frontend. `seen` are its requests in order; `connections` how many were opened."""

    script: Script
    seen: list[Upcall] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def listen(self, port: int = 0) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=64 * 1024 * 1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """As if the datacenter were gone: nothing listens, and what was open is reset."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while (call := await _read(reader, writer)) is not None:
                self.seen.append(call)
                await self.script(call)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Upcall | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
    except asyncio.IncompleteReadError:
        return None
    lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return Upcall(lines[0].split(" ")[1], headers, raw, reader, writer)


def chunk(text: str, ids: list[int] | None = None, *, finish: str | None = None, prompt: int = 16, cached: int = 0,
          completion: int | None = None) -> bytes:
    """A chunk in Dynamo's shape: usage and token ids are its last keys."""
    event = {
        "id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": text, "role": "assistant"},
                                         "finish_reason": finish, "logprobs": None}],
        "created": 1_796_000_000, "model": "sim/glm-5.3", "object": "chat.completion.chunk",
    }
    if completion is not None:
        event["usage"] = usage(prompt, completion, cached)
    if ids is not None:
        event["nvext"] = {"completion_token_ids": ids}
    return b"data: " + json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def final_usage(prompt: int, completion: int, cached: int = 0) -> bytes:
    """The event after the last chunk."""
    return b"data: " + json.dumps({
        "id": "chatcmpl-1", "choices": [], "created": 1_796_000_000, "model": "sim/glm-5.3",
        "object": "chat.completion.chunk", "usage": usage(prompt, completion, cached)},
        separators=(",", ":")).encode() + b"\n\n"


def usage(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached}}


def stream_of(words: list[str], prompt: int = 16, cached: int = 0) -> list[bytes]:
    """A whole stream, one token a word."""
    events = [chunk(word, [100 + n], prompt=prompt, cached=cached, completion=n + 1) for n, word in enumerate(words)]
    return [*events, chunk("", [], finish="stop", prompt=prompt, cached=cached, completion=len(words)),
            final_usage(prompt, len(words), cached), DONE]


def whole_answer(text: str, prompt: int = 16, completion: int = 3, cached: int = 0) -> dict[str, Any]:
    """A unary answer in Dynamo's shape."""
    return {
        "id": "chatcmpl-1", "choices": [{"index": 0, "message": {"content": text, "role": "assistant"},
                                         "finish_reason": "stop", "logprobs": None}],
        "created": 1_796_000_000, "model": "sim/glm-5.3", "object": "chat.completion",
        "usage": usage(prompt, completion, cached)}


async def answers(call: Upcall) -> None:
    """Serves like a healthy frontend."""
    if call.body.get("stream"):
        await call.begin_stream()
        for event in stream_of([" the", " quick", " fox"]):
            await call.send(event)
        await call.end_stream()
    else:
        await call.answer(200, whole_answer(" the quick fox"))


def refuses(status: int, body: dict[str, Any] | None = None, headers: str = "") -> Script:
    """Answers everything with one error, in Dynamo's flat shape."""
    async def script(call: Upcall) -> None:
        await call.answer(status, body or {"message": "no", "type": "Error", "code": status}, headers)
    return script


def streams(*steps: bytes, pause_s: float = 0.01, then: Callable[[Upcall], Any] | None = None) -> Script:
    """Sends these events, a chunk and a read each, then ends the body, or does `then`."""
    async def script(call: Upcall) -> None:
        await call.begin_stream()
        for step in steps:
            await call.send(step)
            await asyncio.sleep(pause_s)
        if then is None:
            await call.end_stream()
        else:
            result = then(call)
            if asyncio.iscoroutine(result):
                await result
    return script
