"""Simulated processes: their own clock, their tasks, and death without a last word."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.simulation.loop import VirtualLoop
from tests.simulation.story import WHO, Story

EPOCH_S = 1_800_000_000.0


class SkewedClock:
    """A machine's clock: `offset_s` away from the truth and `drift` fast (1.0001 gains 0.1 ms a second)."""

    def __init__(self, loop: VirtualLoop, offset_s: float = 0.0, drift: float = 1.0) -> None:
        self._loop, self.offset_s, self.drift = loop, offset_s, drift

    def time_s(self) -> float:
        return EPOCH_S + self._loop.now_s * self.drift + self.offset_s

    def monotonic_s(self) -> float:
        return self._loop.now_s * self.drift


class InOrder(dict[Any, None]):
    """A set that is walked in the order in which it was filled, in every run."""

    def add(self, one: Any) -> None:
        self[one] = None

    def discard(self, one: Any) -> None:
        self.pop(one, None)


class Process:
    """One boot of a process. Once killed nothing that it still does has any effect: whoever it talks to looks at
    `alive`."""

    def __init__(self, name: str, story: Story, loop: VirtualLoop) -> None:
        self.name, self.story, self.loop = name, story, loop
        self.alive = True
        self._order: list[asyncio.Task[Any]] = []

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs `work` as a part of this process; an error that it does not expect is a violation."""
        token = WHO.set(self.name)
        task = self.loop.create_task(work)
        WHO.reset(token)
        self._order.append(task)
        if len(self._order) > 64:
            self._order = [one for one in self._order if not one.done()]
        task.add_done_callback(self._ended)
        return task

    def kill(self) -> None:
        """kill -9: first it is cut off from everything, then its tasks are swept away."""
        self.alive = False
        for task in self._order:
            task.cancel()
        self._order.clear()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        if task.cancelled() or not self.alive:
            if not task.cancelled():
                task.exception()
            return
        error = task.exception()
        if error is not None and not getattr(error, "is_expected", False):
            self.story.violate("no unexpected error", f"{self.name}: {type(error).__name__}: {error}")
