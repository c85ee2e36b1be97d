"""The control plane's process: migrate, connect, answer requests, run the loops, and stop in order."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI
from sqlalchemy.exc import DBAPIError

import migrations
from control_plane import errors, health
from control_plane.agents import routes as agents
from control_plane.audit import routes as audit
from control_plane.billing import routes as billing
from control_plane.capacity import routes as capacity
from control_plane.context import AppContext
from control_plane.contracts import ids, logs
from control_plane.contracts.clock import Clock, SystemClock, utc
from control_plane.contracts.signing import SigningKey
from control_plane.contracts.version import RELEASE
from control_plane.dashboard import routes as dashboard
from control_plane.db import Database
from control_plane.identity import routes as identity
from control_plane.identity.cache import Identities
from control_plane.middleware import AccessLog, Limits
from control_plane.operations import routes as operations
from control_plane.override import routes as override
from control_plane.reconcile import loops as reconcilers
from control_plane.reconcile import outbox
from control_plane.routing import recovery_routes as recovery
from control_plane.routing import routes as routing
from control_plane.settings import Settings
from control_plane.tenancy import routes as tenancy
from control_plane.topology import routes as topology
from control_plane.usage import routes as usage
from control_plane.usage.partitions import Partitions, days_ahead
from control_plane.wakeup import Wakeups
from control_plane.watch.board import Board

log = structlog.get_logger()

ROUTERS = (
    health.router, identity.router, audit.router, tenancy.router, usage.router, billing.router, topology.router,
    agents.router, operations.router, capacity.router, override.router, routing.router, recovery.router,
    dashboard.router)
RETRY_MIN_S, RETRY_MAX_S = 0.2, 5.0
SHUTDOWN_GRACE_S = 5
STARTUP_FAILURE = 3

Loop = Callable[[], Coroutine[Any, Any, None]]


def build_app(settings: Settings, clock: Clock | None = None) -> FastAPI:
    """The ASGI app of one replica; nothing is opened before its lifespan starts."""
    chosen = clock or SystemClock()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with running(settings, chosen) as context:
            app.state.context = context
            yield

    app = FastAPI(title="Meridian control plane", version=RELEASE, lifespan=lifespan)
    app.add_middleware(Limits, max_body_bytes=settings.max_body_bytes, deadline_s=settings.request_deadline_s)
    app.add_middleware(AccessLog, clock=chosen)
    errors.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


@asynccontextmanager
async def running(settings: Settings, clock: Clock) -> AsyncIterator[AppContext]:
    """A migrated database, the context around it, and the loops; all closed again at the end."""
    await _migrated(settings, clock)
    db = Database(settings.database_url, statement_timeout_s=settings.statement_timeout_s,
                  lock_timeout_s=settings.lock_timeout_s, pool_size=settings.pool_size)
    context = AppContext(
        settings=settings, db=db, clock=clock, signing_key=SigningKey.load_or_create(settings.signing_key_file),
        wakeups=Wakeups(settings.database_url), identities=Identities(db, clock, settings.identity_cache_s),
        partitions=Partitions(), board=Board(db, clock))
    await context.partitions.ensure(db, days_ahead(utc(clock.time_s()).date()))
    tasks = [asyncio.create_task(_kept_running(name, loop)) for name, loop in _loops(context)]
    try:
        yield context
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await db.aclose()


class Server(uvicorn.Server):
    """Ends the long-polls when it begins to stop: the lifespan ends only after the last request, so it comes too late
    for that, and every stop would take the whole grace."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        context: AppContext = self._app.state.context
        context.wakeups.close()
        await super().shutdown(sockets)


def build_server(settings: Settings) -> Server:
    """The server of one replica; nothing is opened before it runs."""
    app = build_app(settings)
    return Server(app, uvicorn.Config(
        app, host=settings.host, port=settings.port, loop="uvloop", http="httptools", ws="none", access_log=False,
        log_config=None, log_level="warning", server_header=False, timeout_graceful_shutdown=SHUTDOWN_GRACE_S))


def serve() -> None:
    """Runs one replica until it is told to stop."""
    logs.configure("control-plane")
    server = build_server(Settings())
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def _loops(context: AppContext) -> list[tuple[str, Loop]]:
    loops: list[tuple[str, Loop]] = [
        ("wakeups", context.wakeups.run), ("reconcilers", partial(reconcilers.run, context))]
    if context.settings.redis_url:
        loops.append(("outbox", partial(outbox.run, context)))
    return loops


async def _kept_running(name: str, loop: Loop) -> None:
    """Starts `loop` again, with back-off, whenever it ends: a replica without its loops would look healthy."""
    delay_s = RETRY_MIN_S
    while True:
        started_s = asyncio.get_running_loop().time()
        try:
            await loop()
            log.error("loop_ended", loop=name)
        except Exception:  # a loop must never take the replica down; its failure is logged whole
            log.exception("loop_failed", loop=name)
        ran_s = asyncio.get_running_loop().time() - started_s
        delay_s = RETRY_MIN_S if ran_s > RETRY_MAX_S else min(delay_s * 2, RETRY_MAX_S)
        await asyncio.sleep(ids.jitter(delay_s))


async def _migrated(settings: Settings, clock: Clock) -> None:
    """Upgrades the schema, waiting for Postgres for as long as `start_deadline_s`."""
    give_up_s = clock.monotonic_s() + settings.start_deadline_s
    delay_s = RETRY_MIN_S
    while True:
        try:
            async with asyncio.timeout(settings.start_deadline_s):
                await migrations.upgrade(settings.database_url)
            return
        except (DBAPIError, OSError, TimeoutError) as error:
            if clock.monotonic_s() >= give_up_s or not errors.is_database_away(error):
                raise
            log.warning("waiting_for_database", error=type(error).__name__)
        await asyncio.sleep(ids.jitter(delay_s))
        delay_s = min(delay_s * 2, RETRY_MAX_S)
