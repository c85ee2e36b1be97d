"""A real edge process on a state directory, and a datacenter's frontend for it to relay to."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.integration.edge_api.control_plane import KEY, free_port
from tests.unit.edge_api.builders import MODEL

START_S = 30.0


class EdgeProcess:
    """`meridian edge` as its user runs it; it can be killed and started again on the same disk and port."""

    def __init__(self, directory: Path, control_plane_url: str, **settings: object) -> None:
        self.state_dir, self.log_path = directory / "edge", directory / "edge.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: asyncio.subprocess.Process | None = None
        self._environment = {
            "MERIDIAN_PORT": str(self.port), "MERIDIAN_CONTROL_PLANE_URLS": control_plane_url,
            "MERIDIAN_STATE_DIR": str(self.state_dir), "MERIDIAN_ENROLMENT_TOKEN_FILE": str(directory / "token"),
        } | {f"MERIDIAN_{name.upper()}": str(value) for name, value in settings.items()}

    async def start(self, ready: bool = True) -> None:
        with self.log_path.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "from edge_api.main import main; main()", env=os.environ | self._environment,
                stdout=log, stderr=log)
        await self.answers("/readyz" if ready else "/healthz")

    async def answers(self, path: str) -> None:
        """Waits until the path is answered with 200."""
        async with asyncio.timeout(START_S), httpx.AsyncClient(base_url=self.url, timeout=1) as client:
            while True:
                try:
                    if (await client.get(path)).status_code == 200:
                        return
                except httpx.HTTPError:
                    assert self.process is not None
                    assert self.process.returncode is None, self.log()
                await asyncio.sleep(0.05)

    async def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Sends the signal and waits for the end."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(with_signal)
        return await asyncio.wait_for(self.process.wait(), START_S)

    def log(self) -> str:
        return self.log_path.read_text()


@asynccontextmanager
async def edge_process(directory: Path, control_plane_url: str, **settings: object) -> AsyncIterator[EdgeProcess]:
    """An edge that is ready; it is gone at the end, however the test ends."""
    edge = EdgeProcess(directory, control_plane_url, **settings)
    try:
        await edge.start()
        yield edge
    finally:
        await edge.stop(signal.SIGKILL)


class Datacenter:
    """Answers chat streams as a Dynamo frontend does: `tokens` events, `pause_s` apart, usage in each."""

    def __init__(self, tokens: int = 5, pause_s: float = 0.0) -> None:
        self.tokens, self.pause_s = tokens, pause_s
        self.port, self.seen = 0, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n")
                               if line.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
                if head.startswith(b"GET"):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")  # a probe
                    continue
                self.seen += 1
                await self._stream(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for count in range(1, self.tokens + 1):
            finish = "stop" if count == self.tokens else None
            self._event(writer, count, [{"index": 0, "delta": {"content": "word "}, "finish_reason": finish}])
            await writer.drain()
            await asyncio.sleep(self.pause_s)
        self._event(writer, self.tokens, [])
        self._chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _event(self, writer: asyncio.StreamWriter, count: int, choices: list[dict[str, object]]) -> None:
        event: dict[str, object] = {
            "id": "chatcmpl-1", "choices": choices, "created": 1, "model": MODEL, "object": "chat.completion.chunk",
            "usage": {"prompt_tokens": 16, "completion_tokens": count, "total_tokens": 16 + count,
                      "prompt_tokens_details": {"cached_tokens": 0}}}
        if choices:
            event["nvext"] = {"completion_token_ids": [1_000 + count]}
        self._chunk(writer, b"data: %b\n\n" % json.dumps(event, separators=(",", ":")).encode())

    def _chunk(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))


@asynccontextmanager
async def datacenter(tokens: int = 5, pause_s: float = 0.0) -> AsyncIterator[Datacenter]:
    frontend = Datacenter(tokens, pause_s)
    server = await asyncio.start_server(frontend.serve, "127.0.0.1", 0)
    frontend.port = server.sockets[0].getsockname()[1]
    try:
        yield frontend
    finally:
        server.close()


def chat_body(**fields: object) -> dict[str, object]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "stream": True} | fields


def client_of(edge: EdgeProcess, key: str = KEY) -> httpx.AsyncClient:
    """A client with a key; a test closes it."""
    return httpx.AsyncClient(
        base_url=edge.url, headers={"authorization": f"Bearer {key}"}, trust_env=False, timeout=30,
        limits=httpx.Limits(max_connections=200))
