"""The worker: Celery tasks and the beat that starts the regular ones, in one process.

Tasks are async functions of the slices; they run on one event loop in a thread of its own, which the pool's threads
wait for. A worker that starts while Valkey is away waits for it.

It answers `/healthz` (the event loop turns), `/readyz` (a task of the beat ran lately, so queue, beat and pool work)
and `/metrics`.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog
from celery import Celery, signals
from celery.beat import EmbeddedService, Scheduler, Service
from prometheus_client import REGISTRY

from control_plane import metrics
from control_plane.audit import tasks as audit
from control_plane.capacity import tasks as capacity
from control_plane.contracts import health, logs
from control_plane.contracts.clock import Clock, SystemClock
from control_plane.db import Database
from control_plane.evidence import tasks as evidence
from control_plane.identity import tasks as identity
from control_plane.queue import build_queue
from control_plane.settings import Settings
from control_plane.usage import tasks as usage
from control_plane.usage.service import ROLLUP_TOPIC

log = structlog.get_logger()

TASK_DEADLINE_S = 300.0
RETRIES = 5
RETRY_BASE_S, RETRY_MAX_S = 2, 300
THREADS = 2
SCHEDULE_FILE = "beat-schedule"
HEARTBEAT_S = 10.0
READY_FOR_S = 3 * HEARTBEAT_S
TURN_S, STUCK_AFTER_S = 1.0, 15.0
SCHEDULE_S = {
    "worker.heartbeat": HEARTBEAT_S,
    "usage.rollup.catch_up": 600.0,
    "usage.partitions": 3_600.0,
    "identity.prune": 3_600.0,
    "capacity.prune": 3_600.0,
    "audit.verify": 86_400.0,
    "evidence.prune": 3_600.0,
}


Work = Callable[[dict[str, Any]], Coroutine[Any, Any, None]]


class Pulse:
    """When the event loop last turned, and when a task of the beat last ran; monotonic seconds, written by the loop and
    read by the thread that answers for health."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turned_at_s = clock.monotonic_s()
        self._beaten_at_s: float | None = None

    async def turn(self) -> None:
        """Shows for ever that the loop turns."""
        while True:
            self._turned_at_s = self._clock.monotonic_s()
            await asyncio.sleep(TURN_S)

    def beat(self) -> None:
        """A task of the beat ran."""
        self._beaten_at_s = self._clock.monotonic_s()
        metrics.WORKER_HEARTBEAT_S.set(self._clock.time_s())

    def is_alive(self) -> bool:
        return self._clock.monotonic_s() - self._turned_at_s < STUCK_AFTER_S

    def is_ready(self) -> bool:
        return self.is_alive() and not self.problem()

    def problem(self) -> str:
        """What keeps tasks from running, in words; empty if nothing does."""
        if self._beaten_at_s is None:
            return "no task has run yet: is Valkey there?"
        age_s = self._clock.monotonic_s() - self._beaten_at_s
        return f"no task of the beat ran for {age_s:.0f} s: is Valkey there?" if age_s > READY_FOR_S else ""


class Background:
    """An event loop in a thread of its own, on which all tasks run; it holds the one database pool."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.clock, self.pulse = clock, Pulse(clock)
        self._loop = asyncio.new_event_loop()
        self._turning = self._loop.create_task(self.pulse.turn())
        self._thread = threading.Thread(target=self._loop.run_forever, name="tasks", daemon=True)
        self._thread.start()
        self.db = Database(settings.database_url, statement_timeout_s=TASK_DEADLINE_S,
                           lock_timeout_s=settings.lock_timeout_s, pool_size=THREADS)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` to its end, from any thread; at most 300 s."""
        asyncio.run_coroutine_threadsafe(_bounded(work), self._loop).result()

    def close(self) -> None:
        """Closes the pool and ends the thread."""
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._turning.cancel()
        await asyncio.gather(self._turning, return_exceptions=True)
        await self.db.aclose()


def build_worker(settings: Settings, background: Background) -> Celery:
    """The Celery app with every task and the beat's schedule."""
    app = build_queue(settings.redis_url)
    db, clock = background.db, background.clock
    works: dict[str, Work] = {
        ROLLUP_TOPIC: lambda payload: usage.rebuild_rollup(db, payload),
        "usage.rollup.catch_up": lambda _: usage.catch_up_rollups(db, clock),
        "usage.partitions": lambda _: usage.make_partitions(db, clock),
        "identity.prune": lambda _: identity.prune_enrolment_tokens(db, clock),
        "capacity.prune": lambda _: capacity.prune(db),
        "audit.verify": lambda _: audit.verify_chain(db),
        "evidence.prune": lambda _: evidence.prune_minutes(db),
        "worker.heartbeat": lambda _: beat_heart(background.pulse, settings.heartbeat_file),
    }
    for name, work in works.items():
        _register(app, name, work, background)
    app.conf.beat_schedule = {
        name: {"task": name, "schedule": every_s, "options": {"expires": every_s}}
        for name, every_s in SCHEDULE_S.items()}
    return app


def build_beat(app: Celery, state_dir: Path | None) -> Service:
    """The beat, in a thread of its own. It writes to `state_dir` and nowhere else: Celery's own choice would be a file
    in whatever directory the worker was started from."""
    if state_dir is None:
        return EmbeddedService(app, thread=True, scheduler_cls=Scheduler)
    state_dir.mkdir(parents=True, exist_ok=True)
    return EmbeddedService(app, thread=True, schedule_filename=str(state_dir / SCHEDULE_FILE))


async def beat_heart(pulse: Pulse, file: Path | None) -> None:
    """Says that the queue, the beat, the pool and the event loop are all alive; touches the file that says so, too."""
    pulse.beat()
    if file is not None:
        await asyncio.to_thread(file.touch)


def serve() -> None:
    """Runs the worker until it is told to stop."""
    logs.configure("worker")
    settings = Settings()
    background = Background(settings, SystemClock())
    pulse = background.pulse
    probes = health.Probes(pulse.is_alive, pulse.is_ready, pulse.problem, REGISTRY)
    try:
        health.serve(settings.host, settings.worker_port, probes)
    except OSError as error:
        background.close()
        sys.exit(f"meridian worker: cannot listen on {settings.host}:{settings.worker_port}: {error.strerror}; "
                 "set MERIDIAN_WORKER_PORT")
    app = build_worker(settings, background)
    beat = build_beat(app, settings.state_dir)

    def ready(**_: Any) -> None:
        background.run(beat_heart(pulse, settings.heartbeat_file))
        log.info("worker_ready")
        beat.start()

    def stopping(**_: Any) -> None:
        beat.stop()

    signals.worker_ready.connect(ready)
    signals.worker_shutting_down.connect(stopping)
    app.Worker(pool="threads", concurrency=THREADS, without_gossip=True, without_mingle=True,
               loglevel="WARNING", quiet=True).start()
    background.close()


def _register(app: Celery, name: str, work: Work, background: Background) -> None:
    """Makes `work` a task; a failure is tried again with growing pauses and jitter, then left to the next beat."""

    def body(payload: dict[str, Any] | None = None) -> None:
        result = "failed"
        try:
            with metrics.WORKER_TASK_DURATION_S.labels(name).time():
                background.run(work(payload or {}))
            result = "done"
        finally:
            metrics.WORKER_TASKS.labels(name, result).inc()

    app.task(name=name, autoretry_for=(Exception,), retry_backoff=RETRY_BASE_S, retry_backoff_max=RETRY_MAX_S,
             max_retries=RETRIES)(body)


async def _bounded(work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(TASK_DEADLINE_S):
        await work
