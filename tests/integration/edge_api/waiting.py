"""Waiting for what happens by itself, with an end."""

import asyncio
from collections.abc import Callable

POLL_S = 0.01


async def until(holds: Callable[[], object], within_s: float = 15.0) -> None:
    """Returns once `holds`; fails with a TimeoutError after `within_s`."""
    async with asyncio.timeout(within_s):
        while True:
            if holds():
                return
            await asyncio.sleep(POLL_S)
