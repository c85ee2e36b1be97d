"""The edge's background tasks: each runs for ever, and a fault in one ends neither it nor the others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import structlog

from control_plane.contracts import ids
from edge_api.metrics import Metrics

RESTART_S = 1.0

log = structlog.get_logger()

Task = Callable[[], Awaitable[None]]


@asynccontextmanager
async def running(
        tasks: Mapping[str, Task], metrics: Metrics, restart_s: float = RESTART_S) -> AsyncIterator[None]:
    """Runs the named tasks until the block ends, then cancels them and waits for them. One that fails is started again
    after `restart_s`."""
    for name in tasks:
        metrics.background_faults.labels(name)  # told with 0, so that the first fault is seen as a rise
    async with asyncio.TaskGroup() as group:
        started = [group.create_task(_for_ever(name, task, metrics, restart_s)) for name, task in tasks.items()]
        try:
            yield
        finally:
            for task in started:
                task.cancel()


async def _for_ever(name: str, task: Task, metrics: Metrics, restart_s: float) -> None:
    while True:
        try:
            await task()
        except Exception:  # the edge serves on: a bug in shipping must not end routing, nor the reverse
            metrics.background_faults.labels(name).inc()
            log.exception("background_task_failed", task=name)
        else:
            return
        await asyncio.sleep(ids.jitter(restart_s))
