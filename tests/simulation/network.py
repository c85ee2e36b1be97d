"""The network between simulated processes: late, lossy, repeating itself, and cut in two when a fault says so."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

from tests.simulation.loop import VirtualLoop
from tests.simulation.process import Process
from tests.simulation.story import Story

Answer = TypeVar("Answer")


class Unanswered(Exception):
    """No answer in time: lost, cut off, or too slow."""

    is_expected = True


class Refused(Exception):
    """Nobody listens there."""

    is_expected = True


class Network:
    """Owns what is cut and how bad the weather is. Ends are named by place: ``edge-1``, ``cp-2``, ``fleet-us``."""

    def __init__(self, loop: VirtualLoop, chance: Random, story: Story) -> None:
        self._loop, self._chance, self._story = loop, chance, story
        self.cuts: set[frozenset[str]] = set()
        self.lost_share = self.repeated_share = self.slow_share = self.stale_share = 0.0

    def is_cut(self, one: str, other: str) -> bool:
        return bool(self.cuts) and frozenset((one, other)) in self.cuts

    def cut(self, one: str, other: str) -> None:
        self.cuts.add(frozenset((one, other)))

    def mend(self, one: str, other: str) -> None:
        self.cuts.discard(frozenset((one, other)))

    def heal(self) -> None:
        """From now on all is well."""
        self.cuts.clear()
        self.lost_share = self.repeated_share = self.slow_share = self.stale_share = 0.0

    def stale(self, earlier: Sequence[Answer]) -> Answer | None:
        """One of these earlier answers, when the weather is bad."""
        if not self.stale_share or not earlier or self._chance.random() >= self.stale_share:
            return None
        self._story.note("an earlier answer comes once more")
        return self._chance.choice(earlier)

    def delay_s(self) -> float:
        """How long something is on its way: mostly milliseconds, now and then seconds, which reorders it."""
        if self.slow_share and self._chance.random() < self.slow_share:
            return self._chance.uniform(0.2, 6.0)
        return 0.001 + 0.02 * self._chance.random()

    async def ask(self, one: str, other: str, server: Process | None, serve: Callable[[], Awaitable[Answer]],
                  deadline_s: float) -> Answer:
        """The answer of `server`, which runs `serve` for this question, or twice for one that is repeated.

        Raises:
            Unanswered, Refused: there is none.
        """
        began_s, chance = self._loop.now_s, self._chance
        if self.is_cut(one, other) or chance.random() < self.lost_share:
            await asyncio.sleep(deadline_s)
            raise Unanswered(f"{other} does not answer")
        await asyncio.sleep(self.delay_s())
        if server is None or not server.alive:
            raise Refused(f"{other} refuses connections")
        asked = server.spawn(_carefully(serve))
        if chance.random() < self.repeated_share:
            self._loop.call_later(self.delay_s(), self._repeat, server, serve)
        left_s = began_s + deadline_s - self._loop.now_s
        await asyncio.wait((asked,), timeout=max(left_s, 0.0))
        if not asked.done():
            raise Unanswered(f"{other} is too slow")
        if asked.cancelled():
            raise Refused(f"{other} died")
        if self.is_cut(one, other) or chance.random() < self.lost_share:
            await asyncio.sleep(max(began_s + deadline_s - self._loop.now_s, 0.0))
            raise Unanswered(f"the answer of {other} was lost")
        await asyncio.sleep(self.delay_s())
        answer, error = asked.result()
        if error is not None:
            raise error
        return answer

    def _repeat(self, server: Process, serve: Callable[[], Awaitable[Answer]]) -> None:
        if server.alive:
            self._story.reach("a message arrived twice")
            server.spawn(_carefully(serve))


async def _carefully(serve: Callable[[], Awaitable[Answer]]) -> tuple[Answer | None, Exception | None]:
    """The answer, or an error that is an answer, too."""
    try:
        return await serve(), None
    except Exception as error:  # whoever asked has to hear of it, and is not this task
        if getattr(error, "is_expected", False):
            return None, error
        raise
