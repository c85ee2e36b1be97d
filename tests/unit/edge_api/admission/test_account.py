"""Waiting in line for units: first come first served, one ask for all, and nobody waits for ever."""

import asyncio

import pytest

from edge_api.admission.account import Account, Hold, Used
from edge_api.errors import RATE_LIMITED, Refusal


class Jar(Account):
    """Holds units; what is asked for comes when the test says so. More than `most` at once is refused."""

    def __init__(self, most: int = 100) -> None:
        super().__init__()
        self.free, self.most, self.asks = 0, most, list[int]()

    def take_now(self, units: int) -> Hold | None:
        if units > self.most:
            raise Refusal(RATE_LIMITED, "too much")
        if units > self.free:
            return None
        self.free -= units
        return Hold(self, units, None)

    def undo(self, hold: Hold) -> None:
        self.free += hold.units

    def settle(self, hold: Hold, used: Used) -> None:
        self.free += hold.units - used.tokens

    def release(self, hold: Hold, is_settled: bool) -> None:
        if not is_settled:
            self.free += hold.units

    def ask(self) -> None:
        self.is_asking = True
        self.asks.append(self.wanted())

    def comes(self, units: int) -> None:
        self.free += units
        self.serve()
        self.is_asking = False


async def test_who_waits_gets_its_units_when_they_come() -> None:
    jar = Jar()
    waiting = jar.take(5, 0.0)
    jar.comes(5)
    assert (await waiting).units == 5


async def test_one_ask_is_under_way_for_all_who_wait() -> None:
    jar = Jar()
    for units in (5, 3, 2):
        jar.take(units, 0.0)
    assert jar.asks == [5]
    assert jar.wanted() == 10


async def test_who_came_first_is_served_first() -> None:
    jar = Jar()
    first, second = jar.take(5, 0.0), jar.take(1, 0.0)
    jar.comes(4)
    assert not first.done()
    assert not second.done(), "nobody overtakes"
    jar.comes(1)
    assert first.done()
    assert not second.done()


async def test_who_left_is_passed_over() -> None:
    jar = Jar()
    first, second = jar.take(5, 0.0), jar.take(1, 0.0)
    first.cancel()
    assert jar.wanted() == 1
    jar.comes(1)
    assert (await second).units == 1
    assert jar.head() is None


async def test_who_is_refused_makes_room_for_the_next() -> None:
    jar = Jar()
    first, second = jar.take(50, 0.0), jar.take(1, 0.0)
    jar.most = 10
    jar.comes(1)
    with pytest.raises(Refusal):
        await first
    assert (await second).units == 1


async def test_units_are_shared_out_whole() -> None:
    jar = Jar()
    waiting = [jar.take(3, 0.0) for _ in range(10)]
    jar.comes(10)
    assert [answer.done() for answer in waiting] == [True] * 3 + [False] * 7
    assert jar.free == 1


async def test_all_who_wait_are_answered_in_the_end() -> None:
    jar = Jar()
    waiting = [jar.take(at % 5 + 1, 0.0) for at in range(50)]
    while jar.head() is not None:
        jar.comes(2)
    assert sum(hold.units for hold in await asyncio.gather(*waiting)) == 150
