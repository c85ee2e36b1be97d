"""Waiting for what happens by itself, with an end."""

import asyncio
import inspect
from collections.abc import Callable

POLL_S = 0.01


async def until(holds: Callable[[], object], within_s: float = 15.0) -> None:
    """Returns once `holds`, a function or a coroutine function; fails with a TimeoutError after `within_s`."""
    async with asyncio.timeout(within_s):
        while True:
            held = holds()
            if inspect.isawaitable(held):
                held = await held
            if held:
                return
            await asyncio.sleep(POLL_S)
