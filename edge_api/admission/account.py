"""An account is one thing that a request needs so many units of: a limit's allowance, a stream's slot, a scope's money.

Who needs units takes them at once where this edge holds enough; else it waits in line, first come first served, while
one ask for all who wait is under way. What is taken is a `Hold`, and every hold ends in exactly one way: `undo` (the
request was not let in after all) or `release`, with a `settle` before it if it used something.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import NamedTuple

from edge_api.errors import Refusal


class Used(NamedTuple):
    """What a request used in truth."""

    tokens: int
    cost_nusd: int


class Waiter(NamedTuple):
    """Somebody who waits for units. `since_s` is monotonic."""

    units: int
    answer: "asyncio.Future[Hold]"
    since_s: float


class Hold(NamedTuple):
    """Units that were taken. `mark` is the account's own: where they came from."""

    account: "Account"
    units: int
    mark: object


class Account(ABC):
    """Owns what this edge holds of one thing, and who waits for more."""

    def __init__(self) -> None:
        self.waiting: deque[Waiter] = deque()
        self.is_asking = False

    @abstractmethod
    def take_now(self, units: int) -> Hold | None:
        """The units, if this edge holds them.

        Raises:
            Refusal: it is certain that they are not to be had now.
        """

    @abstractmethod
    def undo(self, hold: Hold) -> None:
        """The request was not let in: as if nothing had been taken."""

    @abstractmethod
    def settle(self, hold: Hold, used: Used) -> None:
        """What was used of a hold. Before its release, once at most."""

    @abstractmethod
    def release(self, hold: Hold, is_settled: bool) -> None:
        """The request is over."""

    @abstractmethod
    def ask(self) -> None:
        """Asks for what the waiting need, unless an ask is under way."""

    def take(self, units: int, now_s: float) -> "asyncio.Future[Hold]":
        """The units, once they are here, or a Refusal."""
        answer: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()
        self.waiting.append(Waiter(units, answer, now_s))
        if not self.is_asking:
            self.ask()
        return answer

    def head(self) -> Waiter | None:
        """Who is first in line, and still there."""
        while self.waiting and self.waiting[0].answer.done():
            self.waiting.popleft()
        return self.waiting[0] if self.waiting else None

    def wanted(self) -> int:
        """What all who wait need together."""
        return sum(waiter.units for waiter in self.waiting if not waiter.answer.done())

    def serve(self) -> None:
        """Lets in, in order, as many of the waiting as what is here suffices for. One that is refused is told so, and
        the next is looked at."""
        while (waiter := self.head()) is not None:
            try:
                hold = self.take_now(waiter.units)
            except Refusal as refused:
                waiter.answer.set_exception(refused)
            else:
                if hold is None:
                    return
                waiter.answer.set_result(hold)
