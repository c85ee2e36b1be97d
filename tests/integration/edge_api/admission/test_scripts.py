"""The three scripts on a real Valkey, each with what another edge may have left there."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from edge_api.admission.scripts import CORRECT, HOLD, KEPT_MS, SLOT_MS, TAKE, WINDOW_SLOTS, Script

KEY = "adm:{team_1}:test"


@dataclass
class Shelf:
    """One key, and the scripts that work on it."""

    client: Redis

    async def run(self, script: Script, *args: int | str) -> list[int]:
        answer: list[int] = await self.client.eval(script.text, 1, KEY, *args)
        return answer

    async def take(self, limit: int, at_least: int, want: int) -> list[int]:
        return await self.run(TAKE, limit, at_least, want)

    async def hold(self, edge: str, limit: int, held: int, wanted: int, spare: int = 0, ms: int = 5000) -> list[int]:
        return await self.run(HOLD, edge, limit, held, wanted, spare, ms)

    async def slot(self) -> int:
        seconds, micros = await self.client.time()
        return int(seconds * 1000 + micros // 1000) // SLOT_MS

    async def used(self, **at: int) -> None:
        """Units that were used so many slots ago: `ago_3=5`."""
        slot = await self.slot()
        for name, units in at.items():
            await self.client.hset(KEY, str(slot - int(name.removeprefix("ago_"))), str(units))

    async def sum(self) -> int:
        return sum(int(units) for units in await self.client.hvals(KEY))


@pytest.fixture
async def shelf(valkey_url: str) -> AsyncIterator[Shelf]:
    async with Redis.from_url(valkey_url) as client:
        yield Shelf(client)


async def test_what_is_taken_is_counted_and_expires(shelf: Shelf) -> None:
    granted, _, left, wait_ms, *_ = await shelf.take(100, 10, 10)
    assert (granted, left, wait_ms) == (10, 90, 0)
    assert await shelf.sum() == 10
    assert 0 < await shelf.client.pttl(KEY) <= KEPT_MS


async def test_an_eighth_of_what_is_left_may_be_taken_beyond_the_need(shelf: Shelf) -> None:
    assert (await shelf.take(100, 20, 100))[0] == 20 + 80 // 8


async def test_no_more_than_is_wanted_is_granted(shelf: Shelf) -> None:
    assert (await shelf.take(1000, 20, 25))[0] == 25


async def test_near_the_limit_it_is_the_need_exactly(shelf: Shelf) -> None:
    assert (await shelf.take(100, 80, 100))[0] == 80


async def test_a_block_for_nobody_in_particular_is_nothing_near_the_limit(shelf: Shelf) -> None:
    await shelf.used(ago_1=90)
    assert (await shelf.take(100, 0, 50))[0] == 0


async def test_a_limit_is_not_exceeded_by_one(shelf: Shelf) -> None:
    await shelf.take(100, 95, 95)
    assert (await shelf.take(100, 6, 6))[0] == 0
    assert (await shelf.take(100, 5, 5))[0] == 5


async def test_a_use_counts_until_its_whole_slot_is_a_minute_old(shelf: Shelf) -> None:
    await shelf.used(ago_29=100)
    assert (await shelf.take(100, 1, 1))[0] == 0


async def test_older_uses_count_no_more_and_are_forgotten(shelf: Shelf) -> None:
    await shelf.used(ago_40=100, ago_35=100)
    assert (await shelf.take(100, 100, 100))[0] == 100
    assert await shelf.client.hlen(KEY) == 1


async def test_a_refusal_says_when_enough_is_free(shelf: Shelf) -> None:
    await shelf.used(ago_20=30, ago_10=30, ago_5=40)
    granted, _, left, wait_ms, oldest_ms, _ = await shelf.take(100, 50, 50)
    assert (granted, left) == (0, 0)
    assert (WINDOW_SLOTS - 10) * SLOT_MS - SLOT_MS < wait_ms <= (WINDOW_SLOTS - 10 + 1) * SLOT_MS
    assert (WINDOW_SLOTS - 20) * SLOT_MS - SLOT_MS < oldest_ms <= (WINDOW_SLOTS - 20 + 1) * SLOT_MS


async def test_a_refusal_takes_nothing(shelf: Shelf) -> None:
    await shelf.take(100, 101, 101)
    assert await shelf.client.exists(KEY) == 0


async def test_what_was_not_used_goes_back_to_its_slot(shelf: Shelf) -> None:
    _, slot, *_ = await shelf.take(100, 100, 100)
    await shelf.run(CORRECT, slot, -60)
    assert (await shelf.take(100, 60, 60))[0] == 60


async def test_what_was_used_beyond_is_counted(shelf: Shelf) -> None:
    await shelf.run(CORRECT, await shelf.slot(), 70, await shelf.slot() - 3, 20)
    assert (await shelf.take(100, 11, 11))[0] == 0


async def test_what_comes_back_to_a_wiped_valkey_frees_nothing(shelf: Shelf) -> None:
    await shelf.run(CORRECT, await shelf.slot(), -500)
    assert (await shelf.take(100, 101, 101))[0] == 0
    assert await shelf.sum() == 0


async def test_what_comes_back_too_late_changes_nothing(shelf: Shelf) -> None:
    await shelf.used(ago_1=100)
    await shelf.run(CORRECT, await shelf.slot() - 50, -100)
    assert await shelf.sum() == 100


async def test_edges_hold_as_much_as_fits_together(shelf: Shelf) -> None:
    assert await shelf.hold("a", 10, 0, 7) == [7, 3]
    assert await shelf.hold("b", 10, 0, 7) == [3, 0]
    assert await shelf.hold("b", 10, 3, 1) == [3, 0]


async def test_what_an_edge_gives_back_another_may_have(shelf: Shelf) -> None:
    await shelf.hold("a", 10, 0, 10)
    await shelf.hold("a", 10, 4, 0)
    assert await shelf.hold("b", 10, 0, 10) == [6, 0]


async def test_saying_it_twice_changes_nothing(shelf: Shelf) -> None:
    for _ in range(3):
        assert await shelf.hold("a", 10, 7, 0) == [7, 3]


async def test_what_runs_is_held_whatever_the_limit_says(shelf: Shelf) -> None:
    await shelf.hold("a", 10, 0, 10)
    assert await shelf.hold("b", 10, 5, 3) == [5, 0]
    assert await shelf.hold("a", 10, 10, 1) == [10, 0]


async def test_spare_slots_are_an_eighth_of_what_is_left(shelf: Shelf) -> None:
    assert await shelf.hold("a", 100, 0, 20, spare=50) == [30, 70]
    assert await shelf.hold("b", 100, 0, 69, spare=5) == [69, 1]


async def test_a_silent_edges_slots_come_free(shelf: Shelf) -> None:
    await shelf.hold("a", 10, 0, 9, ms=1)
    await shelf.hold("b", 10, 1, 0)
    await asyncio.sleep(0.01)
    assert await shelf.hold("b", 10, 1, 9) == [10, 0]


async def test_an_edge_that_says_it_for_a_shorter_time_shortens_nobody_elses(shelf: Shelf) -> None:
    await shelf.hold("a", 10, 0, 9, ms=5000)
    await shelf.hold("b", 10, 1, 0, ms=1)
    await asyncio.sleep(0.01)
    assert await shelf.hold("b", 10, 0, 9) == [1, 0]


async def test_an_edge_that_holds_nothing_leaves_nothing(shelf: Shelf) -> None:
    await shelf.hold("a", 10, 0, 3)
    await shelf.hold("a", 10, 0, 0)
    assert await shelf.client.exists(KEY) == 0


async def test_what_is_no_number_is_thrown_away(shelf: Shelf) -> None:
    await shelf.client.hset(KEY, "a", "rubbish")
    assert await shelf.hold("b", 10, 0, 10) == [10, 0]
