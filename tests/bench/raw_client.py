"""A chat client that costs next to nothing, so that a bench loads the edge and not itself.

It writes one HTTP/1.1 request on a connection of its own and reads to the end, looking at bytes only: so one process
can hold twenty streams and a steady rate of requests, which an SDK that parses every event cannot on two cores.
"""

import asyncio
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer: its status, and whether it came whole and ended as an answer of its kind must."""

    status: int
    whole: bool
    finished: bool
    fault: str = ""

    @property
    def well(self) -> bool:
        return self.status == 200 and self.whole and self.finished and not self.fault


async def chat(url: str, api_key: str, body: dict[str, object], deadline_s: float) -> Heard:
    """Asks for a completion, streamed if `body` says so, and reads all of it. A fault is told, not raised."""
    try:
        async with asyncio.timeout(deadline_s):
            return await _exchange(url, api_key, json.dumps(body).encode())
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        return Heard(0, False, False, f"{type(error).__name__}: {error}")


async def _exchange(url: str, api_key: str, body: bytes) -> Heard:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write((f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"
                      f"authorization: Bearer {api_key}\r\ncontent-type: application/json\r\n"
                      f"content-length: {len(body)}\r\nconnection: close\r\n\r\n").encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        return judge(head, await _rest(reader))
    finally:
        writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while piece := await reader.read(READ_BYTES):
        pieces.append(piece)
    return b"".join(pieces)


def judge(head: bytes, body: bytes) -> Heard:
    """What an answer amounts to. It is finished when it says why it ended and, if it is a stream, `[DONE]`."""
    status = int(head.split(b" ", 2)[1])
    fields = head.lower()
    if b"transfer-encoding: chunked" in fields:
        whole = body.endswith(b"0\r\n\r\n")
    else:
        lengths = [line.split(b":")[1] for line in fields.split(b"\r\n") if line.startswith(b"content-length:")]
        whole = [len(body)] == [int(length) for length in lengths]
    is_stream = b"text/event-stream" in fields
    finished = (b"data: [DONE]" in body if is_stream else True) and (
        b'"finish_reason":"stop"' in body or b'"finish_reason":"length"' in body)
    fault = "" if b'"error"' not in body else body[body.index(b'"error"'):][:160].decode(errors="replace")
    return Heard(status, whole, finished, fault)
