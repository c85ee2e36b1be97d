"""Keeps a dead datacenter's streams from falling upon the living ones all at once.

When a datacenter dies, each of its streams costs the next one a prefill at the same moment. So the resumes of this edge
into one datacenter are spread by a little chance and taken a few at a time, each until its first event is there; the
others wait, for a bounded time and in a bounded number.
"""

import asyncio
from collections import deque

from control_plane.contracts import ids


class NoPlace(Exception):
    """Too many resumes wait for this datacenter, or one has waited too long."""


class Spread:
    """Owns the places of each datacenter: `at_once` in use, `max_waiting` waiting, each for `wait_s` at most. A resume
    begins after a random pause of at most `pause_s`."""

    def __init__(self, at_once: int, max_waiting: int, wait_s: float, pause_s: float) -> None:
        self._at_once, self._max_waiting = at_once, max_waiting
        self._wait_s, self._pause_s = wait_s, pause_s
        self._queues: dict[str, _Queue] = {}

    async def enter(self, datacenter_id: str) -> "Slot":
        """A place in a datacenter, to be left once the first event is there or nothing more is wanted.

        Raises:
            NoPlace: there is none, and none in time.
        """
        queue = self._queues.setdefault(datacenter_id, _Queue(self._at_once))
        await asyncio.sleep(ids.jitter(self._pause_s / 2, share=1.0))
        if len(queue.waiting) >= self._max_waiting:
            raise NoPlace(f"{self._max_waiting} streams wait to go on in {datacenter_id}")
        try:
            async with asyncio.timeout(self._wait_s):
                await queue.enter()
        except TimeoutError:
            raise NoPlace(f"a stream could not go on in {datacenter_id} within {self._wait_s:g} s") from None
        return Slot(queue)

    def waiting(self, datacenter_id: str) -> int:
        """How many wait for a place there."""
        queue = self._queues.get(datacenter_id)
        return len(queue.waiting) if queue else 0


class Slot:
    """One place. Leaving it twice is leaving it once."""

    __slots__ = ("_queue",)

    def __init__(self, queue: "_Queue") -> None:
        self._queue: _Queue | None = queue

    def leave(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.leave()


class _Queue:
    """First come, first served. A place that is given up goes straight to the next one."""

    __slots__ = ("_free", "waiting")

    def __init__(self, places: int) -> None:
        self._free = places
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # the place came in the moment in which nobody wanted it any more
            elif turn in self.waiting:
                self.waiting.remove(turn)
            raise

    def leave(self) -> None:
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
