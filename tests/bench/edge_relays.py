"""What stands side by side: the edge by itself, nginx, and bare Python relays, each one process before one upstream."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.prepared_edge import free_port
from tests.bench.shared_bench import process

EDGE, NGINX = "edge", "nginx"
KEY = "bench"
MAX_CONNECTIONS = 8_192
BARE = ("asgi_aiohttp", "fastapi_aiohttp", "fastapi_httpx")  # relays without keys and metering

NGINX_CONF = """worker_processes 1; daemon off; pid {place}/nginx.pid; error_log {place}/nginx.log;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_max_body_size 32m; client_body_buffer_size 1m; keepalive_requests 1000000;
  client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
  upstream frontend {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000; }}
  server {{ listen 127.0.0.1:{port}; location / {{
    proxy_pass http://frontend; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }} }}
}}
"""


@dataclass(frozen=True, slots=True)
class Relay:
    """One relay that runs. `key` is empty where none is asked for."""

    name: str
    pid: int
    port: int
    key: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def relays(place: Path, upstream_port: int, scripts: Path) -> Iterator[list[Relay]]:
    """All that can be had here, the edge first; what cannot is said."""
    with ExitStack() as stack:
        running = [stack.enter_context(edge(place / "edge", upstream_port))]
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        if program is None:
            print("nginx is missing (Debian: apt-get install nginx-light): there will be no ratios")
        else:
            running.append(stack.enter_context(nginx(program, place, upstream_port)))
        if importlib.util.find_spec("aiohttp") is None:
            print("aiohttp is missing, which nothing else here needs: the bare relays are left out")
        else:
            running += [stack.enter_context(bare(name, scripts, upstream_port)) for name in BARE]
        yield running


@contextmanager
def edge(state_dir: Path, upstream_port: int) -> Iterator[Relay]:
    """The edge as people start it: with a key, prices, and full metering into its outbox."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("meridian")), "edge", "--upstream",
               f"http://127.0.0.1:{upstream_port}/v1", "--port", str(port), "--state-dir", str(state_dir),
               "--input-usd", "0.6", "--cached-usd", "0.11", "--output-usd", "2.2"]
    with process(command, port, os.environ | {"MERIDIAN_STANDALONE_KEY": KEY}) as pid:
        yield Relay(EDGE, pid, port, KEY)


@contextmanager
def nginx(program: str, place: Path, upstream_port: int) -> Iterator[Relay]:
    """nginx with one worker, relaying as it comes."""
    port, conf = free_port(), place / "nginx.conf"
    conf.write_text(NGINX_CONF.format(place=place, upstream=upstream_port, port=port))
    with process([program, "-c", str(conf)], port) as pid:
        yield Relay(NGINX, pid, port)


@contextmanager
def bare(name: str, scripts: Path, upstream_port: int) -> Iterator[Relay]:
    """One of the bare relays: no key, no metering, no reading."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", f"ref_proxies:{name}", "--app-dir", str(scripts), "--port", str(port),
               "--no-access-log", "--log-level", "error"]
    with process(command, port, os.environ | {"UPSTREAM": f"http://127.0.0.1:{upstream_port}"}) as pid:
        yield Relay(name, pid, port)
