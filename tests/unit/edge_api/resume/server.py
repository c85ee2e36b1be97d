"""A loopback server for small questions: it answers each request with what a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from control_plane.contracts.clock import SystemClock
from edge_api.upstream.pool import Address, PoolLimits, UpstreamPool

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """`seen` are whole requests; `abandoned` is set when a connection ended before its answer did."""

    answer: Answer
    pool: UpstreamPool
    address: Address = ("127.0.0.1", 0, False)
    seen: list[bytes] = field(default_factory=list)
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)

    async def drops_once(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ends this connection without a word; whoever comes next is told "again"."""
        self.answer = tells(200, b"again")
        writer.transport.abort()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.seen.append(head + await reader.readexactly(length))
                await self.answer(reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.abandoned.set()
        finally:
            writer.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def says(*pieces: bytes, pause_s: float = 0.0) -> Answer:
    """Writes these bytes, one after the other."""
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
    return answer


def tells(status: int, body: bytes) -> Answer:
    """A whole answer."""
    return says(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))


async def drops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ends the connection without a word."""
    writer.transport.abort()


async def is_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    await reader.read()


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    """A server, with a pool that reaches it."""
    pool = UpstreamPool(PoolLimits(connect_timeout_s=1.0, idle_s=10.0, max_idle=8, max_open=8), SystemClock())
    it = Server(answer, pool)
    listener = await asyncio.start_server(it.handle, "127.0.0.1", 0, limit=1 << 24)
    it.address = ("127.0.0.1", listener.sockets[0].getsockname()[1], False)
    yield it
    pool.close()
    listener.close()
