"""How an edge listens: the cold routes' app and the hot path's protocol in one uvicorn server, and how it ends.
"""

import asyncio
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from edge_api.app import ColdParts, build_app
from edge_api.hot.hotpath import HotPath
from edge_api.hot.protocol import hot_protocol
from edge_api.hot.services import Limits
from edge_api.settings import Settings

CUT_S = 0.1
OWN_FILES = 256
MAX_CLIENTS = 1_000_000

log = structlog.get_logger()


class EdgeServer(uvicorn.Server):
    """Goes on for `notice_s` after the first signal; `is_leaving` since then."""

    def __init__(self, notice_s: float, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._notice_s = notice_s
        self._leaves_at_s: float | None = None
        self.is_leaving = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.is_leaving or not self._notice_s:
            super().handle_exit(sig, frame)
        self.is_leaving = True

    async def on_tick(self, counter: int) -> bool:
        if self.is_leaving and not self.should_exit:
            now_s = asyncio.get_running_loop().time()
            if self._leaves_at_s is None:
                self._leaves_at_s = now_s + self._notice_s
            self.should_exit = now_s >= self._leaves_at_s
        return await super().on_tick(counter)


def leave_on_signals() -> None:
    """SIGTERM and SIGINT before or after serving are an orderly end; uvicorn takes both while it serves, and gives them
    back at the end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)


def listen(settings: Settings, hot: HotPath, parts: ColdParts,
           living: Callable[[], AbstractAsyncContextManager[None]]) -> None:
    """Serves until a signal: readiness goes, then nothing new is taken, open requests have their grace, then they are
    cut, and what `living` does at its end comes last."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with living():
            yield
            await cut_connections(server)

    app = build_app(replace(parts, is_leaving=lambda: server.is_leaving), lifespan)
    server = EdgeServer(settings.leaving_notice_s, uvicorn.Config(
        app, host=settings.host, port=settings.port, loop="uvloop", http=hot_protocol(hot),
        ws="none", lifespan="on", access_log=False, log_config=None, proxy_headers=False, server_header=False,
        backlog=settings.backlog, timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=settings.shutdown_grace_s))
    server.run()


async def cut_connections(server: uvicorn.Server) -> None:
    """Ends what is still open when the grace is over, so that each such request gets its usage record now."""
    connections = list(server.server_state.connections)
    for connection in connections:
        connection.transport.abort()
    if connections:
        log.warning("connections_cut", count=len(connections))
        await asyncio.sleep(CUT_S)  # the protocols settle when the loop tells them that the connection is lost


def limits_of(settings: Settings) -> Limits:
    """The hot path's bounds, as far as they are set from outside."""
    return Limits(
        max_body_bytes=settings.max_body_bytes, max_bodies_bytes=settings.max_bodies_bytes,
        max_attempts=settings.max_attempts,
        connect_timeout_s=settings.connect_timeout_s, first_byte_timeout_s=settings.first_byte_timeout_s,
        idle_timeout_s=settings.idle_timeout_s, keep_alive_s=settings.keep_alive_s,
        max_connections=max_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def max_connections(open_files: int) -> int:
    """How many clients fit, each with a connection to a datacenter, beside the files that the edge needs itself."""
    if open_files == resource.RLIM_INFINITY:
        return MAX_CLIENTS
    return max(open_files // 4, (open_files - OWN_FILES) // 2)


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(0)
