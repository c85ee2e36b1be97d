"""Hints between replicas: who waits for news is woken when another replica commits some.

One Postgres connection per replica listens; `db.notify` speaks. Hints may be lost while that connection is away, so
nothing may depend on them: a waiter reads the truth again after its timeout. After a reconnect everybody is woken.
Polls end at once when the replica stops, because a server stops only after its last request.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import asyncpg
import structlog

from control_plane.contracts import ids
from control_plane.db import CONNECT_TIMEOUT_S, PING, WAKEUP_CHANNEL

log = structlog.get_logger()

RECONNECT_MIN_S, RECONNECT_MAX_S = 0.2, 5.0
CHECK_EVERY_S = 10.0
_CLOSING = ""


class Wakeups:
    """Channels that can be waited for; `count` and `wait(after=…)` together lose no hint between read and wait.

    `listening` is set while hints of other replicas arrive.
    """

    def __init__(self, database_url: str) -> None:
        self._dsn = database_url.replace("postgresql+asyncpg://", "postgresql://", 1)
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._reconnects = 0
        self.listening = asyncio.Event()

    def count(self, channel: str) -> int:
        """How many hints came for `channel` so far, reconnects included; take it before reading the truth."""
        return self._counts.get(channel, 0) + self._reconnects

    async def wait(self, channel: str, timeout_s: float, after: int | None = None) -> bool:
        """Whether a hint came within `timeout_s`, or since `after` (a `count`)."""
        return await self._wait({channel: self.count(channel) if after is None else after}, timeout_s)

    async def poll(self, heard: Mapping[str, int], timeout_s: float) -> None:
        """Until a hint comes for one of the channels of `heard` (each with its `count`), the time is over, or the
        replica stops: for requests, which must not hold the stop up."""
        if not self.is_closing:
            await self._wait({**heard, _CLOSING: self.count(_CLOSING)}, timeout_s)

    @property
    def is_closing(self) -> bool:
        """Whether the replica stops."""
        return _CLOSING in self._counts

    def close(self) -> None:
        """Ends every poll, now and from now on."""
        self.wake(_CLOSING)

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
            self._reconnects += 1  # seen also by who has read the truth and does not wait yet
            for event in [event for events in self._waiting.values() for event in events]:
                event.set()
            while not ended.is_set():
                await connection.fetchval(PING, timeout=CONNECT_TIMEOUT_S)
                await _either(ended, CHECK_EVERY_S)
        finally:
            self.listening.clear()
            connection.terminate()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: Any) -> None:
        self.wake(str(payload))

    async def _wait(self, heard: Mapping[str, int], timeout_s: float) -> bool:
        if any(self.count(channel) != count for channel, count in heard.items()):
            return True
        event = asyncio.Event()
        for channel in heard:
            self._waiting[channel].add(event)
        try:
            return await _either(event, max(timeout_s, 0))
        finally:
            for channel in heard:
                self._forget(channel, event)

    def _forget(self, channel: str, event: asyncio.Event) -> None:
        self._waiting[channel].discard(event)
        if not self._waiting[channel]:
            del self._waiting[channel]


async def _either(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether the event came before the time was over."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
