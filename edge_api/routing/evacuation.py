"""Evacuation: what is open in a datacenter that operators take out at once goes on elsewhere, though it may live.

What cannot go on elsewhere stays: a datacenter that lives may still finish it. All that is open there is asked, a few
at a time, when the snapshot says so, and what is still there is asked again every few seconds, for a stream that cannot
move now, in the middle of a tool call, may be able to then.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from control_plane.contracts import ids
from edge_api.hot.services import TableHolder
from edge_api.routing.table import RoutingTable
from edge_api.upstream.pool import Address

FOLLOW_S = 0.1
AGAIN_S = 5.0
BATCH = 32
BATCH_PAUSE_S = 0.05

log = structlog.get_logger()


class Movable(Protocol):
    """A request that is open in a datacenter."""

    def evacuate(self) -> None:
        """The datacenter is to be left."""
        ...


class Evacuator:
    """Follows the table while `run` runs. `open_at` is what is open at a frontend now."""

    def __init__(self, table: TableHolder, open_at: Callable[[Address], Sequence[Movable]]) -> None:
        self._table, self._open_at = table, open_at
        self._next_s: dict[Address, float] = {}

    async def run(self) -> None:
        """Follows for ever."""
        while True:
            await self.look()
            await asyncio.sleep(FOLLOW_S)

    async def look(self) -> None:
        """Asks what is open at each frontend that is to be left, if it is time to."""
        now_s = asyncio.get_running_loop().time()
        leaving = _leaving(self._table.current)
        self._next_s = {address: self._next_s.get(address, 0.0) for address in leaving}
        for address in sorted(leaving):
            if now_s >= self._next_s[address]:
                await self._ask(address, is_first=not self._next_s[address])
                self._next_s[address] = now_s + ids.jitter(AGAIN_S)

    async def _ask(self, address: Address, is_first: bool) -> None:
        movables = self._open_at(address)
        if is_first:
            log.info("evacuation_began", host=address[0], port=address[1], open_requests=len(movables))
        for start in range(0, len(movables), BATCH):
            for movable in movables[start:start + BATCH]:
                movable.evacuate()
            await asyncio.sleep(BATCH_PAUSE_S)


def _leaving(table: RoutingTable | None) -> set[Address]:
    """The frontends of datacenters that are evacuated."""
    if table is None:
        return set()
    return {route.address for model in table.models.values() for route in model.routes if route.evacuate}
