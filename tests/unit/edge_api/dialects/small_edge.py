"""The smallest server around a dialect: real clients ask it over a socket, and it answers what a datacenter is said to
have answered. It knows no keys, no metering and no routing."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

from edge_api.dialects.base import Asked, ChunkHead, Dialect, StreamVoice
from edge_api.errors import Refusal

REQUEST_ID = UUID("019ad000-0000-7000-8000-0123456789ab")
USAGE: dict[str, Any] = {
    "prompt_tokens": 146012, "completion_tokens": 412, "total_tokens": 146424,
    "prompt_tokens_details": {"cached_tokens": 139776}, "completion_tokens_details": {"reasoning_tokens": 120}}
COSTED = {**USAGE, "cost": 0.02002336, "cost_details": {"input": 0.0037416, "currency": "USD"}, "is_byok": False}
NASTY = 'a<b> & "q" \\ \n\t 😀 é  </tool>'


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chunk(delta: dict[str, Any] | None = None, finish_reason: str | None = None, **choice: object) -> dict[str, Any]:
    """One event of a chat stream, with the usage that a voice asks for in each."""
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 5, "model": "m", "usage": USAGE,
            "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish_reason, **choice}]}


def call(index: int | None, call_id: str | None = None, name: str | None = None, arguments: str | None = None,
         ) -> dict[str, Any]:
    """A delta with a fragment of one call; what is null is left out, as engines do."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    piece = {"index": index, "id": call_id, "function": function}
    return {"tool_calls": [{key: value for key, value in piece.items() if value is not None}]}


LAST = {**chunk(), "choices": [], "usage": COSTED}


def stream(*chunks: dict[str, Any]) -> list[bytes]:
    """The events of a whole stream, the usage event included."""
    return [event(value) for value in (*chunks, LAST)]


def answer(message: dict[str, Any], finish_reason: str = "stop", **choice: object) -> bytes:
    """A whole unary answer."""
    return json.dumps({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 5, "model": "m", "usage": COSTED,
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason,
                     **choice}]}, ensure_ascii=False).encode()


@dataclass
class SmallEdge:
    """`says` is the datacenter's answer: events, a whole body, or a refusal; `breaks` ends a stream after its events.
    `asked` is the last request, as it would go upstream."""

    url: str
    dialects: Mapping[str, Dialect]
    says: list[bytes] | bytes | Refusal = b""
    breaks: Refusal | None = None
    counted: int = 0
    asked: list[Asked] = field(default_factory=list)

    @property
    def upstream(self) -> dict[str, Any]:
        """The body of the last request, as it goes upstream."""
        body: dict[str, Any] = json.loads(self.asked[-1].body)
        return body


def told(voice: StreamVoice, events: list[bytes], breaks: Refusal | None = None) -> Iterator[bytes]:
    """All that a voice says of a stream, with a keep-alive before the first event and after each."""
    yield voice.begin()
    yield voice.keep_alive
    for each in events if breaks else events[:-1]:
        yield voice.tell(each)
        yield voice.keep_alive
    yield voice.end(events[-1]) if breaks is None else voice.fail(breaks, ChunkHead())


@contextmanager
def small_edge(**dialects: Dialect) -> Iterator[SmallEdge]:
    """Serves each dialect at `/v1/` and its name, `__` standing for a slash."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            dialect = edge.dialects[self.path.partition("?")[0]]
            try:
                asked = dialect.read(body, {}, REQUEST_ID)
                edge.asked.append(asked)
                if isinstance(edge.says, Refusal):
                    raise edge.says
            except Refusal as refused:
                status, body = dialect.refusal(refused, REQUEST_ID)
                self._send(status, "application/json", [body], refused.headers())
                return
            if asked.counts is not None:
                self._send(200, "application/json", [asked.counts(edge.counted)])
            elif isinstance(edge.says, list):
                assert asked.voice is not None
                assert asked.streamed
                self._send(200, "text/event-stream", told(asked.voice(), edge.says, edge.breaks))
            else:
                assert asked.answer is not None
                assert not asked.streamed
                self._send(200, "application/json", [asked.answer(edge.says)])

        def _send(self, status: int, kind: str, pieces: Iterator[bytes] | list[bytes],
                  headers: list[tuple[bytes, bytes]] | None = None) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("request-id", f"req_{REQUEST_ID.hex}")
            for name, value in headers or ():
                self.send_header(name.decode(), value.decode())
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    edge = SmallEdge(f"http://127.0.0.1:{server.server_port}",
                     {"/v1/" + name.replace("__", "/"): dialect for name, dialect in dialects.items()})
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield edge
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
