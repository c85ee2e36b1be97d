"""The relay from the outbox to Celery, in every replica.

A row is leased in one transaction, handed over outside of it, and deleted in another: no network call happens while
the database waits. While Valkey is away rows stay and are tried again with back-off; a row may be handed over twice
(a replica died in between), never not at all. Tasks are harmless to repeat.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from control_plane import metrics
from control_plane.context import AppContext
from control_plane.contracts import ids
from control_plane.db import Database
from control_plane.reconcile import repository
from control_plane.reconcile.models import OutboxRow

log = structlog.get_logger()

POLL_S = 1.0
BATCH = 50
LEASE_S = 60.0
PUBLISH_DEADLINE_S = 20.0
BACKOFF_MIN_S, BACKOFF_MAX_S = 1.0, 60.0

Publish = Callable[[str, dict[str, Any], str], None]


class Relay:
    """Hands due rows to `publish`, which blocks and raises when the queue is away. It runs in a thread of its own."""

    def __init__(self, db: Database, publish: Publish) -> None:
        self._db, self._publish = db, publish
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="outbox")

    async def run(self) -> None:
        """Relays until cancelled."""
        try:
            while True:
                more = await self.once()
                await asyncio.sleep(0 if more else ids.jitter(POLL_S))
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def once(self) -> bool:
        """Relays what is due, up to 50 rows; whether there may be more."""
        token = ids.nonce()
        async with self._db.begin() as session:
            rows = await repository.lease(session, token, LEASE_S, BATCH)
        sent = await self._send(rows)
        async with self._db.begin() as session:
            await repository.delivered(session, token, [row.id for row in rows[:sent]])
            for row in rows[sent:]:
                await repository.postpone(session, token, [row.id], backoff_s(row.attempts))
        return sent == BATCH

    async def _send(self, rows: Sequence[OutboxRow]) -> int:
        """How many of `rows` were handed over before the first that could not be."""
        loop = asyncio.get_running_loop()
        for sent, row in enumerate(rows):
            try:
                async with asyncio.timeout(PUBLISH_DEADLINE_S):
                    await loop.run_in_executor(self._thread, self._publish, row.topic, row.payload, f"outbox-{row.id}")
            except Exception as error:  # whatever the queue's client raises: the row stays and is tried again
                log.warning("outbox_away", topic=row.topic, attempts=row.attempts, error=type(error).__name__)
                metrics.OUTBOX_RELAY_UP.set(0)
                return sent
            metrics.OUTBOX_RELAYED.labels(row.topic).inc()
        if rows:
            metrics.OUTBOX_RELAY_UP.set(1)
        return len(rows)


def backoff_s(attempts: int) -> float:
    """How long a row waits after its `attempts`-th failure."""
    return min(BACKOFF_MIN_S * 2.0 ** min(attempts - 1, 10), BACKOFF_MAX_S)


async def run(context: AppContext) -> None:
    """The relay of this replica, until cancelled."""
    await Relay(context.db, LazyPublisher(context.settings.redis_url)).run()


class LazyPublisher:
    """Publishes to Celery; makes its client at the first call, in the relay's thread."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._celery: Any = None

    def __call__(self, topic: str, payload: dict[str, Any], task_id: str) -> None:
        if self._celery is None:
            from control_plane.queue import build_queue

            self._celery = build_queue(self._redis_url)
        self._celery.send_task(topic, args=[payload], task_id=task_id, retry=False)
