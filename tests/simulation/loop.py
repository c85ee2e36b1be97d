"""An asyncio event loop whose time is made up: it jumps to the next thing that is due, so an hour costs what happens in
it. Everything that awaits runs on it unchanged, always in the same order."""

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

DISK_S = 0.002


class VirtualLoop(asyncio.BaseEventLoop):
    """Owns virtual time (`now_s`, from 0 on). What product code hands to a thread is done here, `thread_s` later."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.thread_s: Callable[[], float] = lambda: DISK_S
        self._ready: deque[asyncio.Handle]
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()

    def time(self) -> float:
        return self.now_s

    def call_at(
            self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.TimerHandle:
        """What is due at the same time runs in the order in which it was asked for."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._due, (when, next(self._numbers), timer))
        return timer

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        done = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # whatever it is belongs to whoever waits
                done.set_exception(error)

        self.call_later(self.thread_s(), work)
        return done

    def _run_once(self) -> None:
        """As asyncio's, but nobody outside is waited for: when nothing is ready, time jumps."""
        ready, due = self._ready, self._due
        if not ready:
            while due and due[0][2].cancelled():
                heappop(due)
            if not due:
                raise RuntimeError("everything waits, and nothing is due: the simulated world has stopped")
            self.now_s = max(self.now_s, due[0][0])
        while due and due[0][0] <= self.now_s:
            ready.append(heappop(due)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""
