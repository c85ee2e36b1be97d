"""Hints between replicas: who waits for news is woken when another replica commits some.

One Postgres connection per replica listens; `db.notify` speaks. Hints may be lost while that connection is away, so
nothing may depend on them: a waiter reads the truth again after its timeout. After a reconnect everybody is woken.
"""

import asyncio
from collections import defaultdict
from typing import Any

import asyncpg
import structlog

from control_plane.contracts import ids
from control_plane.db import CONNECT_TIMEOUT_S, PING, WAKEUP_CHANNEL

log = structlog.get_logger()

RECONNECT_MIN_S, RECONNECT_MAX_S = 0.2, 5.0
CHECK_EVERY_S = 10.0


class Wakeups:
    """Channels that can be waited for; `count` and `wait(after=…)` together lose no hint between read and wait.

    `listening` is set while hints of other replicas arrive.
    """

    def __init__(self, database_url: str) -> None:
        self._dsn = database_url.replace("postgresql+asyncpg://", "postgresql://", 1)
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self.listening = asyncio.Event()

    def count(self, channel: str) -> int:
        """How many hints came for `channel` so far; take it before reading the truth."""
        return self._counts.get(channel, 0)

    async def wait(self, channel: str, timeout_s: float, after: int | None = None) -> bool:
        """Whether a hint came within `timeout_s`, or since `after` (a `count`)."""
        if after is not None and self.count(channel) != after:
            return True
        event = asyncio.Event()
        self._waiting[channel].add(event)
        try:
            async with asyncio.timeout(max(timeout_s, 0)):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            self._forget(channel, event)
        return True

    def wake(self, channel: str) -> None:
        """Wakes who waits for `channel` in this process."""
        self._counts[channel] += 1
        for event in self._waiting.get(channel, ()):
            event.set()

    async def run(self) -> None:
        """Listens until cancelled; connects again, with back-off, whenever the connection ends."""
        delay_s = RECONNECT_MIN_S
        while True:
            try:
                await self._listen()
                delay_s = RECONNECT_MIN_S
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("wakeups_away", error=type(error).__name__)
                delay_s = min(delay_s * 2, RECONNECT_MAX_S)
            await asyncio.sleep(ids.jitter(delay_s))

    async def _listen(self) -> None:
        connection = await asyncpg.connect(self._dsn, timeout=CONNECT_TIMEOUT_S)
        ended = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: ended.set())
            await connection.add_listener(WAKEUP_CHANNEL, self._heard)
            self.listening.set()
            for channel in list(self._waiting):
                self.wake(channel)
            while not ended.is_set():
                await connection.fetchval(PING, timeout=CONNECT_TIMEOUT_S)
                await _either(ended, CHECK_EVERY_S)
        finally:
            self.listening.clear()
            connection.terminate()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: Any) -> None:
        self.wake(str(payload))

    def _forget(self, channel: str, event: asyncio.Event) -> None:
        self._waiting[channel].discard(event)
        if not self._waiting[channel]:
            del self._waiting[channel]


async def _either(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
