"""A TCP gate in front of a server: closed, it cuts every connection and refuses new ones, as a dead server does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit


class Gate:
    """Passes connections on to `port` while it is open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, inner_writer}
        try:
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        finally:
            for end in (writer, inner_writer):
                end.close()
                self._writers.discard(end)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def gated(url: str) -> AsyncIterator[tuple[Gate, str]]:
    """An open gate in front of the server of `url`, and the URL that leads through it."""
    parts = urlsplit(url)
    assert parts.port is not None
    gate = Gate(parts.port)
    await gate.open()
    try:
        yield gate, urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{gate.port}")))
    finally:
        await gate.close()
