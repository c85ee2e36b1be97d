"""An asyncio event loop whose time is made up: it jumps to the next thing that is due, so an hour costs what happens in
it. Everything that awaits runs on it unchanged, always in the same order."""

import asyncio
from collections.abc import Callable
from typing import Any

DISK_S = 0.002


class _Nothing:
    """In the place of a selector: nobody outside is waited for, so waiting is a step of time."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout_s: float | None) -> list[Any]:
        if timeout_s is None:
            raise RuntimeError("everything waits, and nothing is due: the simulated world has stopped")
        self._loop.now_s += timeout_s
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Owns virtual time (`now_s`, from 0 on). What product code hands to a thread is done here, `thread_s` later."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.thread_s: Callable[[], float] = lambda: DISK_S
        self._clock_resolution = 1e-6
        self._selector = _Nothing(self)

    def time(self) -> float:
        return self.now_s

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

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""
