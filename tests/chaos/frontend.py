"""A datacenter's frontend as a process of its own, so that a test can stop, go on with and kill it.

It accepts each chat request at once, is silent for `silence_s`, then streams five words; a unary answer comes after the
same silence. `/live` is always answered, `/seen` says how many requests came.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.unit.edge_api.builders import MODEL

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WORDS = 5


class Frontend:
    """What serves in the process."""

    def __init__(self, silence_s: float) -> None:
        self.silence_s, self.seen = silence_s, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                body = await reader.readexactly(next(
                    (int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0))
                if head.startswith(b"GET"):
                    self._whole(writer, b"%d" % self.seen)
                else:
                    self.seen += 1
                    await self._answer(writer, json.loads(body).get("stream", False))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, streamed: bool) -> None:
        if not streamed:
            await asyncio.sleep(self.silence_s)
            choice = {"index": 0, "message": {"role": "assistant", "content": "word " * WORDS}, "finish_reason": "stop"}
            self._whole(writer, json.dumps(self._event([choice], WORDS, "chat.completion")).encode())
            return
        writer.write(STREAM_HEAD)
        await writer.drain()
        await asyncio.sleep(self.silence_s)
        for count in range(1, WORDS + 1):
            choice = {"index": 0, "delta": {"content": "word "}, "finish_reason": "stop" if count == WORDS else None}
            self._chunk(writer, self._event([choice], count) | {"nvext": {"completion_token_ids": [count]}})
        self._chunk(writer, self._event([], WORDS))
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def _event(self, choices: list[dict[str, object]], count: int, kind: str = "chat.completion.chunk",
               ) -> dict[str, object]:
        return {"id": "chatcmpl-1", "choices": choices, "created": 1, "model": MODEL, "object": kind,
                "usage": {"prompt_tokens": 16, "completion_tokens": count, "total_tokens": 16 + count}}

    def _chunk(self, writer: asyncio.StreamWriter, event: dict[str, object]) -> None:
        data = b"data: %b\n\n" % json.dumps(event, separators=(",", ":")).encode()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _whole(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                     % (len(body), body))


class FrontendProcess:
    """One of them, from outside."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process, self.port = process, port

    async def seen(self) -> int:
        """How many requests came."""
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
            return int((await client.get(f"http://127.0.0.1:{self.port}/seen")).text)

    async def seen_any(self) -> bool:
        return await self.seen() > 0


@asynccontextmanager
async def frontend_process(silence_s: float = 0.0) -> AsyncIterator[FrontendProcess]:
    """A frontend that is gone at the end, however the test left it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos.frontend", str(silence_s), stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield FrontendProcess(process, int(await process.stdout.readline()))
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def main(silence_s: float) -> None:
    """Serves until it is killed; the first line of its output is its port."""
    server = await asyncio.start_server(Frontend(silence_s).serve, "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
