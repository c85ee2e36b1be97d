"""Fetch, lease, process, apply: moves rows of Postgres on, from whichever replica gets to them.

A lease is a token with an end on the row itself; what is applied is guarded by the token, so a replica that lost its
lease changes nothing. A replica that dies leaves a lease that runs out. Hints wake the loop, polling makes it right.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from control_plane.context import AppContext
from control_plane.contracts import ids
from control_plane.errors import is_database_away

log = structlog.get_logger()

POLL_S = 1.0
AWAY_MIN_S, AWAY_MAX_S = 0.2, 5.0
MAX_LOOKS = 100
"""Looks at one item before its lease is given back, so that no item holds a replica for ever."""

DATABASE_FAULTS = (DBAPIError, PoolTimeout, OSError, TimeoutError)


class Work(Protocol):
    """Rows that can be leased and moved on."""

    @property
    def name(self) -> str: ...

    @property
    def channel(self) -> str:
        """The wake-up channel that says that there may be something to do."""
        ...

    async def lease(self, token: str) -> Sequence[str]:
        """Items that nobody works on, leased under `token`."""
        ...

    async def advance(self, item: str, token: str) -> bool:
        """Moves `item` on by one look; whether the next can follow at once. Nothing if `token` holds it no more."""
        ...

    async def release(self, item: str, token: str) -> None:
        """Gives the lease back."""
        ...


async def run(context: AppContext, work: Work, poll_s: float = POLL_S) -> None:
    """Moves `work` on until cancelled; waits, with back-off, while Postgres is away."""
    away_s = 0.0
    while True:
        heard = context.wakeups.count(work.channel)
        try:
            await tick(work)
        except DATABASE_FAULTS as error:
            if not is_database_away(error):
                raise
            if not away_s:
                log.warning("database_away", loop=work.name, error=type(error).__name__)
            away_s = min(max(away_s * 2, AWAY_MIN_S), AWAY_MAX_S)
            await asyncio.sleep(ids.jitter(away_s))
            continue
        if away_s:
            log.info("database_back", loop=work.name)
            away_s = 0.0
        await context.wakeups.wait(work.channel, ids.jitter(poll_s), after=heard)


async def tick(work: Work) -> None:
    """Leases what is free and moves each item on as far as it goes now."""
    token = ids.nonce()
    for item in await work.lease(token):
        try:
            for _ in range(MAX_LOOKS):
                if not await work.advance(item, token):
                    break
        except Exception as error:  # one broken item must not stop the others; it is tried again when its lease ran out
            if is_database_away(error):
                raise
            log.exception("item_failed", loop=work.name, item=item)
            continue
        await work.release(item, token)
