"""What the edge costs beside nginx, in the same minutes and in turns: CPU a unary request, CPU a relayed event.

The edge is the real process, metering into its outbox; nginx relays the same bytes of the same frontend and does
nothing else. Both have one worker. Ratios are medians of rounds in which one followed the other at once.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import uvloop

from tests.bench.harness import Figures, paired_ratio, tree_cpu_s, verdict
from tests.bench.load import Target
from tests.bench.prepared_edge import MODEL, await_port, free_port, running_edge

NAME = "relay"
SUMMARY = "edge CPU a unary request and a relayed SSE event, beside nginx (yardsticks 4 x and 2 x)"

UNARY_LIMIT, EVENT_LIMIT = 4.0, 2.0
PACE_MS = 20  # at 0 events coalesce, and every relay looks cheaper than it is
ROUNDS, REQUESTS, CLIENTS = 9, 600, 8
STREAM_ROUNDS, STREAMS, TOKENS = 4, 50, 100
MICRO = 1e6

NGINX_CONF = """worker_processes 1; daemon off; pid {place}/nginx.pid; error_log {place}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_max_body_size 32m; keepalive_requests 1000000;
  client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
  upstream frontend {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000; }}
  server {{ listen 127.0.0.1:{port}; location / {{
    proxy_pass http://frontend; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }} }}
}}
"""


def main() -> Figures:
    """Starts the frontend, nginx and the edge, and loads both in turns."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if nginx is None:
        print("nginx is missing (Debian: apt-get install nginx-light): only the edge's own figures can be measured")
    with tempfile.TemporaryDirectory(prefix="meridian-bench-") as name:
        place, upstream_port = Path(name), free_port()
        with (frontend(upstream_port), running_edge(place / "edge", [f"http://127.0.0.1:{upstream_port}"]) as edge,
              yardstick(nginx, place, upstream_port) as other):
            ours = Measured("edge", edge.pid, Target(edge.port, MODEL, edge.key))
            theirs = Measured("nginx", other[0], Target(other[1], MODEL)) if other else None
            figures = uvloop.run(measure(ours, theirs))
    return figures


class Measured:
    """One relay: its process, its load, and CPU microseconds by round."""

    def __init__(self, name: str, pid: int, target: Target) -> None:
        self.name, self._pid, self._target = name, pid, target
        self.request_us: list[float] = []
        self.event_us: list[float] = []

    async def warm_up(self) -> None:
        await self._target.unary(400, CLIENTS)

    async def unary_round(self) -> None:
        before_s = tree_cpu_s(self._pid)
        await self._target.unary(REQUESTS, CLIENTS)
        self.request_us.append(MICRO * (tree_cpu_s(self._pid) - before_s) / REQUESTS)

    async def stream_round(self, ids: bool) -> None:
        """`ids`: the relay does not ask for token ids by itself, so the client does, that both carry the same bytes."""
        before_s = tree_cpu_s(self._pid)
        streamed = await self._target.streams(STREAMS, TOKENS, 0.4, ids)
        if streamed.done != STREAMS:
            raise RuntimeError(f"{self.name}: {streamed.done} of {STREAMS} streams ended whole")
        self.event_us.append(MICRO * (tree_cpu_s(self._pid) - before_s) / streamed.events)

    def close(self) -> None:
        self._target.close()


async def measure(ours: Measured, theirs: Measured | None) -> Figures:
    """All rounds, in turns."""
    both = [ours] + ([theirs] if theirs else [])
    for relay in both:
        await relay.warm_up()
    for _ in range(ROUNDS):
        for relay in both:
            await relay.unary_round()
    for _ in range(STREAM_ROUNDS):
        for relay in both:
            await relay.stream_round(ids=relay is theirs)
    for relay in both:
        relay.close()
    await asyncio.sleep(0)
    figures: Figures = {}
    for relay in both:
        figures[f"{relay.name}_request_us"] = round(median(relay.request_us), 1)
        figures[f"{relay.name}_event_us"] = round(median(relay.event_us), 1)
        print(f"{relay.name:<6} {median(relay.request_us):7.1f} us a unary request   "
              f"{median(relay.event_us):6.1f} us a relayed event")
    if theirs is not None:
        unary = paired_ratio(list(zip(ours.request_us, theirs.request_us, strict=True)))
        event = paired_ratio(list(zip(ours.event_us, theirs.event_us, strict=True)))
        print(f"unary  {unary:7.2f} x nginx, {verdict(unary, UNARY_LIMIT)}")
        print(f"event  {event:7.2f} x nginx, {verdict(event, EVENT_LIMIT)}")
        figures |= {"unary_x_nginx": round(unary, 2), "event_x_nginx": round(event, 2)}
    return figures


@contextmanager
def frontend(port: int) -> Iterator[None]:
    """The mock frontend, in a process of its own."""
    with _process([sys.executable, "-m", "tests.bench.upstream", str(port), str(PACE_MS)], port):
        yield


@contextmanager
def yardstick(nginx: str | None, place: Path, upstream_port: int) -> Iterator[tuple[int, int] | None]:
    """nginx with one worker: its process id and its port; nothing if it is not installed."""
    if nginx is None:
        yield None
        return
    port, conf = free_port(), place / "nginx.conf"
    conf.write_text(NGINX_CONF.format(place=place, upstream=upstream_port, port=port))
    with _process([nginx, "-c", str(conf)], port) as pid:
        yield pid, port


@contextmanager
def _process(command: list[str], port: int) -> Iterator[int]:
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        await_port(port, process)
        yield process.pid
    finally:
        process.terminate()
        process.wait(10)
