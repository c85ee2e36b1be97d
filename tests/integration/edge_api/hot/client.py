"""A client that shows exactly what came over the socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

DEADLINE_S = 10.0


@dataclass(slots=True)
class Answer:
    """One answer. `is_whole`: it ended as its framing promised."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The JSON events of a stream, `[DONE]` as that text."""
        datas = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return ["[DONE]" if data == b"[DONE]" else json.loads(data) for data in datas]

    @property
    def text(self) -> str:
        """What the stream said."""
        return "".join(choice["delta"].get("content") or "" for event in self.events if isinstance(event, dict)
                       for choice in event["choices"])


@dataclass(slots=True)
class Connection:
    """One connection to the edge."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_head(self) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        return Answer(int(head[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs})

    async def read_chunk(self) -> bytes:
        """One chunk of a chunked body, empty at its end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def read_answer(self) -> Answer:
        """A whole answer, or what came of it before the connection ended."""
        async with asyncio.timeout(DEADLINE_S):
            answer = await self.read_head()
            try:
                if answer.headers.get("transfer-encoding") == "chunked":
                    while data := await self.read_chunk():
                        answer.body += data
                elif "content-length" in answer.headers:
                    answer.body = await self.reader.readexactly(int(answer.headers["content-length"]))
                else:
                    answer.body = await self.reader.read()
                answer.is_whole = True
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            return answer

    async def is_closed(self) -> bool:
        """Whether the edge closes the connection, having said nothing more."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read(1) == b""

    def reset(self) -> None:
        self.writer.transport.abort()


def request(key: str, body: Any, headers: str = "", path: str = "/v1/chat/completions", method: str = "POST",
            length: int | None = None) -> bytes:
    """The bytes of a request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    auth = f"authorization: Bearer {key}\r\n" if key else ""
    return (f"{method} {path} HTTP/1.1\r\nhost: edge\r\n{auth}content-type: application/json\r\n{headers}"
            f"content-length: {len(data) if length is None else length}\r\n\r\n").encode() + data


@dataclass(frozen=True, slots=True)
class Client:
    """Whoever holds a key."""

    port: int
    key: str
    model: str

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A fresh connection, reset at the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Connection(reader, writer)
        finally:
            writer.transport.abort()

    def body(self, **fields: Any) -> dict[str, Any]:
        return {"model": self.model, "messages": [{"role": "user", "content": "hi"}], **fields}

    def request(self, headers: str = "", **fields: Any) -> bytes:
        return request(self.key, self.body(**fields), headers)

    async def ask(self, headers: str = "", **fields: Any) -> Answer:
        """One request on a connection of its own."""
        return await self.send(self.request(headers, **fields))

    async def send(self, data: bytes) -> Answer:
        """These bytes on a connection of their own."""
        async with self.connection() as connection:
            await connection.send(data)
            return await connection.read_answer()
