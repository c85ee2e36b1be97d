"""Small frontends on real sockets that answer probes, or do not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from edge_api.upstream.pool import Address

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LIVE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Frontend:
    """Answers each request with `answer` after `delay_s`; empty: never. `resets`: closes the connection hard instead.
    `asked` holds the first line of each request, `connections` counts."""

    def __init__(self, answer: bytes = LIVE, delay_s: float = 0.0, resets: bool = False) -> None:
        self.answer, self.delay_s, self.resets = answer, delay_s, resets
        self.asked: list[bytes] = []
        self.connections = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def address(self) -> Address:
        return ("127.0.0.1", self.port, False)

    async def start(self) -> None:
        """Listens, on the port that it had before if it had one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuses from now on, and closes what is open."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._open):
                writer.transport.abort()
            await self._server.wait_closed()

    def close_connections(self) -> None:
        """Ends each, as after too long a time without use."""
        for writer in list(self._open):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.asked.append(head.split(b"\r\n")[0])
                await asyncio.sleep(self.delay_s)
                if self.resets:
                    writer.transport.abort()
                    return
                writer.write(self.answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()


@asynccontextmanager
async def frontend(answer: bytes = LIVE, delay_s: float = 0.0, resets: bool = False) -> AsyncIterator[Frontend]:
    """A frontend that is gone at the end."""
    made = Frontend(answer, delay_s, resets)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
