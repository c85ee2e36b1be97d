"""The figures as one replica tells them: read at most once in `FRESH_S`, and never waited for longer than `DEADLINE_S`.

While Postgres is away there are no figures of it, only `meridian_control_plane_database_up` 0: an old value would look
like a true one.
"""

import asyncio
from collections.abc import Sequence

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from control_plane import metrics
from control_plane.contracts.clock import Clock
from control_plane.contracts.figures import Sample, families
from control_plane.db import Database
from control_plane.watch.reading import read

FRESH_S = 3.0
DEADLINE_S = 3.0

log = structlog.get_logger()


class Board:
    """Owns the newest samples. Several scrapes at once read once."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._lock = asyncio.Lock()
        self._read_at_s: float | None = None
        self._text = b""

    async def text(self) -> bytes:
        """The figures in the exposition format; empty while they cannot be read."""
        async with self._lock:
            now_s = self._clock.monotonic_s()
            if self._read_at_s is None or now_s - self._read_at_s >= FRESH_S:
                self._text = _exposed(await self._read())
                self._read_at_s = self._clock.monotonic_s()
            return self._text

    async def _read(self) -> Sequence[Sample]:
        try:
            async with asyncio.timeout(DEADLINE_S), self._db.begin() as session:
                samples = await read(session)
        except (DBAPIError, PoolTimeout, OSError, TimeoutError) as error:
            log.warning("figures_not_read", error=type(error).__name__, problem=str(error).partition("\n")[0])
            metrics.DATABASE_UP.set(0)
            return []
        metrics.DATABASE_UP.set(1)
        return samples


class _Samples(Collector):
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Sequence[Metric]:
        return list(families(self._samples))


def _exposed(samples: Sequence[Sample]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Samples(samples))
    return generate_latest(registry)
