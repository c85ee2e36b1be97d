"""Waits of one length, many at once: one timer looks after all of them.

A timer of the event loop for each request costs more than it is worth: nearly every wait ends before its time. All
waits here have the same length, so the oldest is always first and nothing has to be sorted.
"""

import asyncio
from collections.abc import Callable, Hashable

SHARE_OF_PERIOD = 10
LONGEST_LOOK_S = 1.0


class Deadlines:
    """Owns the waits. A wait that is over calls its `late` no sooner than `period_s` after its start, and no later than
    a tenth of that, or a second, after that."""

    __slots__ = ("_look_s", "_loop", "_period_s", "_timer", "_waits")

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._look_s = min(LONGEST_LOOK_S, period_s / SHARE_OF_PERIOD)
        self._waits: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, waiting: Hashable, late: Callable[[], None]) -> None:
        """Begins a wait, anew if `waiting` has one."""
        loop = self._loop or self._bind()
        self._waits.pop(waiting, None)  # what is put in again goes to the end
        self._waits[waiting] = (loop.time(), late)
        if self._timer is None:
            self._timer = loop.call_later(self._look_s, self._look)

    def stop(self, waiting: Hashable) -> None:
        """Ends a wait, if there is one."""
        self._waits.pop(waiting, None)

    def __len__(self) -> int:
        return len(self._waits)

    def _bind(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        return self._loop

    def _look(self) -> None:
        """Comes by once a look; not at all while nobody waits."""
        loop, self._timer = self._loop or self._bind(), None
        before_s = loop.time() - self._period_s
        over = []
        for waiting, (since_s, _) in self._waits.items():
            if since_s > before_s:
                break
            over.append(waiting)
        if self._waits:  # before anything is called: what one of them raises must not end the looking
            self._timer = loop.call_later(self._look_s, self._look)
        for waiting in over:
            wait = self._waits.pop(waiting, None)  # another one's end may have ended this one, too
            if wait is not None:
                wait[1]()
