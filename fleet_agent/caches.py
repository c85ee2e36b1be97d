"""How full the workers' KV caches are, read from each worker's own page.

Those pages are long, and the answer is for a planner that looks once a minute: they are read every few seconds. What a
worker did not answer is left out, never taken for an empty cache.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence, Set

import httpx

from control_plane.contracts.clock import Clock
from control_plane.contracts.launch import LaunchPlan

READ_EVERY_S = 5.0
DEADLINE_S = 2.0
AT_ONCE = 16


class Caches:
    """The fullest cache of each deployment, as of a few seconds ago."""

    def __init__(self, client: httpx.AsyncClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._read_at_s = -math.inf
        self._fullest: dict[str, float] = {}

    async def read(self, plan: LaunchPlan, ready: Set[str]) -> Mapping[str, float]:
        """Shares in [0, 1] by deployment; one that no ready worker told of is left out."""
        now_s = self._clock.monotonic_s()
        if now_s - self._read_at_s >= READ_EVERY_S:
            self._read_at_s = now_s
            gate = asyncio.Semaphore(AT_ONCE)
            workers = [process for process in plan.processes if process.caches_url and process.name in ready]
            shares = await asyncio.gather(*(
                self._share(worker.caches_url, plan.gauges.kv_usage, gate) for worker in workers))
            self._fullest = {}
            for worker, share in zip(workers, shares, strict=True):
                if share is not None:
                    self._fullest[worker.deployment_id] = max(share, self._fullest.get(worker.deployment_id, 0.0))
        return self._fullest

    async def _share(self, url: str, names: Sequence[str], gate: asyncio.Semaphore) -> float | None:
        try:
            async with gate:
                answer = await self._client.get(url, timeout=DEADLINE_S)
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        return fullest_of(answer.text, names) if answer.is_success else None


def fullest_of(text: str, names: Sequence[str]) -> float | None:
    """The largest of the samples that have one of the names, on a page in the Prometheus text format; null without."""
    found: list[float] = []
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in names:
            try:
                value = float(line.rpartition("}")[2].split()[0 if "}" in line else 1])
            except (ValueError, IndexError):
                continue
            if not math.isnan(value):
                found.append(min(max(value, 0.0), 1.0))
    return max(found, default=None)
