"""A client that costs little: raw keep-alive connections, closed loop for unary requests, spread starts for streams."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, cast

MESSAGES = [{"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "Say something about foxes and dogs, in one or two short sentences."}]
DEADLINE_S = 60.0


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self.reads = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("closed early"))

    def ask(self, raw: bytes) -> asyncio.Future[bytes]:
        self._held.clear()
        self.reads = 0
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(raw)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._held += data
        self.reads += 1
        if self._is_whole() and self._answer is not None and not self._answer.done():
            self._answer.set_result(bytes(self._held))

    def _is_whole(self) -> bool:
        if self._held.endswith(b"0\r\n\r\n"):
            return True
        head_end = self._held.find(b"\r\n\r\n")
        head = bytes(self._held[:head_end]).lower()  # not all write their headers small
        at = head.find(b"content-length: ")
        if at < 0:
            return False
        return len(self._held) >= head_end + 4 + int(head[at + 16:].split(b"\r", 1)[0])


@dataclass(slots=True)
class Streamed:
    """What streams brought: events with data, reads, and streams that ended with `[DONE]`."""

    events: int = 0
    reads: int = 0
    done: int = 0


class Target:
    """An address to load."""

    def __init__(self, port: int, model: str, key: str = "") -> None:
        self._port, self._model = port, model
        self._auth = f"authorization: Bearer {key}\r\n" if key else ""
        self._idle: list[_Connection] = []

    def request(self, **fields: Any) -> bytes:
        body = json.dumps({"model": self._model, "messages": MESSAGES, **fields}).encode()
        return (f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\n{self._auth}"
                f"content-type: application/json\r\naccept: */*\r\ncontent-length: {len(body)}\r\n\r\n").encode() + body

    async def unary(self, count: int, clients: int, **fields: Any) -> None:
        """`count` requests from `clients` at once, each waiting for its answer; `fields` are put into the body.

        Raises:
            RuntimeError: an answer was no 200.
        """
        raw, left = self.request(max_tokens=16, **fields), iter(range(count))

        async def client() -> None:
            for _ in left:
                await self._go(raw)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def streams(self, count: int, tokens: int, spread_s: float, ids: bool = False) -> Streamed:
        """`count` streams, their starts spread over `spread_s`. `ids` asks for token ids, as an edge asks."""
        extra: dict[str, Any] = {"nvext": {"extra_fields": ["completion_token_ids"]}} if ids else {}
        raw = self.request(max_tokens=tokens, stream=True, stream_options={"include_usage": True}, **extra)
        total = Streamed()

        async def stream(number: int) -> None:
            await asyncio.sleep(spread_s * number / count)
            answer, reads = await self._go(raw)
            total.events += answer.count(b"data: {")
            total.done += answer.count(b"data: [DONE]")
            total.reads += reads

        await asyncio.gather(*(stream(number) for number in range(count)))
        return total

    def close(self) -> None:
        for connection in self._idle:
            connection.transport.abort()

    async def _go(self, raw: bytes) -> tuple[bytes, int]:
        connection = self._idle.pop() if self._idle else None
        if connection is None:
            _, connection = await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", self._port)
        answer = await asyncio.wait_for(connection.ask(raw), DEADLINE_S)
        self._idle.append(connection)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"not served: {answer[:300]!r}")
        return answer, connection.reads
