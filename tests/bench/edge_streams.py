"""Many streams held open at once: the longest pause beyond the upstream's own, and the memory that each takes."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import cast

import psutil

from tests.bench.edge_relays import Relay
from tests.bench.harness import CLOCK

SPREAD_S = 2.0  # the starts of the streams, so that their events do not come in step
SETTLE_S = 1.0
DEADLINE_S = 60.0
PROMPT_BYTES = 4_000
MILLI = 1e3
KILO = 1e3


@dataclass(frozen=True, slots=True)
class HeldStreams:
    """What holding them showed. Gaps are the longest between two reads of one stream, through the edge and without it;
    memory is the edge's growth for each stream, `body_bytes` of it the request that it keeps to send again."""

    streams: int
    per_s: int
    whole: int
    gap_ms: float
    direct_gap_ms: float
    rss_kb: float
    body_bytes: int

    @property
    def added_gap_ms(self) -> float:
        return max(0.0, self.gap_ms - self.direct_gap_ms)

    @property
    def own_rss_kb(self) -> float:
        return self.rss_kb - self.body_bytes / KILO


async def hold(relay: Relay, upstream_port: int, streams: int, per_s: int, seconds: int) -> HeldStreams:
    """Opens the streams at the upstream itself, then through the relay, `seconds` each."""
    direct = await _opened(upstream_port, "", streams, per_s, seconds, None)
    through = await _opened(relay.port, relay.key, streams, per_s, seconds, psutil.Process(relay.pid))
    return HeldStreams(
        streams=streams, per_s=per_s, whole=through.whole, gap_ms=MILLI * through.gap_s,
        direct_gap_ms=MILLI * direct.gap_s, rss_kb=through.grown_bytes / streams / KILO,
        body_bytes=len(_body(per_s, 0)))


@dataclass(slots=True)
class _Seen:
    gap_s: float = 0.0
    whole: int = 0
    grown_bytes: int = 0
    open: list["_Stream"] = field(default_factory=list)


class _Stream(asyncio.Protocol):
    """One stream of one connection: when it was last heard, and the longest pause."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._heard_s = 0.0
        self._tail = b""
        self.gap_s = 0.0
        self.over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._raw)

    def data_received(self, data: bytes) -> None:
        now_s = CLOCK.monotonic_s()
        if self._heard_s:
            self.gap_s = max(self.gap_s, now_s - self._heard_s)
        self._heard_s = now_s
        self._tail = (self._tail + data)[-40:]
        if self._tail.endswith(b"0\r\n\r\n"):
            self._end(b"[DONE]" in self._tail)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(whole=False)

    def _end(self, whole: bool) -> None:
        if not self.over.done():
            self.over.set_result(whole)
        self._transport.abort()


async def _opened(port: int, key: str, streams: int, per_s: int, seconds: int, process: psutil.Process | None) -> _Seen:
    seen, body = _Seen(), _body(per_s, per_s * (seconds + int(SPREAD_S)))
    auth = f"authorization: Bearer {key}\r\n" if key else ""
    raw = (f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n{auth}content-type: application/json\r\n"
           f"content-length: {len(body)}\r\n\r\n").encode() + body
    loop, before = asyncio.get_running_loop(), process.memory_info().rss if process else 0
    async with asyncio.timeout(DEADLINE_S + seconds):
        for _ in range(streams):
            _, stream = await loop.create_connection(lambda: _Stream(raw), "127.0.0.1", port)
            seen.open.append(stream)
            await asyncio.sleep(SPREAD_S / streams)
        await asyncio.sleep(SETTLE_S)
        seen.grown_bytes = process.memory_info().rss - before if process else 0
        ends = await asyncio.gather(*(stream.over for stream in seen.open))
    seen.whole, seen.gap_s = sum(ends), max(stream.gap_s for stream in seen.open)
    return seen


def _body(per_s: int, tokens: int) -> bytes:
    return json.dumps({
        "model": "mock-model", "stream": True, "max_tokens": tokens, "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "x" * PROMPT_BYTES + f" [[mock: itl={1000 // per_s}]]"}]}).encode()
