"""How many streams go on in one datacenter at once."""

import asyncio

import pytest

from edge_api.resume.spread import NoPlace, Slot, Spread


def spread(at_once: int = 1, max_waiting: int = 10, wait_s: float = 5.0) -> Spread:
    return Spread(at_once, max_waiting, wait_s, pause_s=0.0)


async def started(*tasks: "asyncio.Task[Slot]") -> None:
    """Lets tasks go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_places_are_given_in_turn() -> None:
    it = spread(at_once=2)
    slots = [await it.enter("a"), await it.enter("a")]
    third = asyncio.create_task(it.enter("a"))
    fourth = asyncio.create_task(it.enter("a"))
    await started(third, fourth)
    assert (third.done(), it.waiting("a")) == (False, 2)
    slots[0].leave()
    await started(third)
    assert (third.done(), fourth.done()) == (True, False)
    slots[1].leave()
    await fourth


async def test_datacenters_do_not_wait_for_each_other() -> None:
    it = spread()
    await it.enter("a")
    await asyncio.wait_for(it.enter("b"), 1)
    assert it.waiting("nowhere") == 0


async def test_leaving_twice_frees_one_place() -> None:
    it = spread()
    slot = await it.enter("a")
    slot.leave()
    slot.leave()
    await it.enter("a")
    second = asyncio.create_task(it.enter("a"))
    await started(second)
    assert not second.done()
    second.cancel()


async def test_who_waits_too_long_is_told() -> None:
    it = spread(wait_s=0.02)
    await it.enter("a")
    with pytest.raises(NoPlace):
        await it.enter("a")
    assert it.waiting("a") == 0


async def test_the_queue_is_bounded() -> None:
    it = spread(max_waiting=1)
    await it.enter("a")
    waiting = asyncio.create_task(it.enter("a"))
    await started(waiting)
    with pytest.raises(NoPlace):
        await it.enter("a")
    waiting.cancel()


async def test_who_leaves_the_queue_frees_its_turn() -> None:
    it = spread()
    slot = await it.enter("a")
    left, stays = asyncio.create_task(it.enter("a")), asyncio.create_task(it.enter("a"))
    await started(left, stays)
    left.cancel()
    await started(left)
    assert it.waiting("a") == 1
    slot.leave()
    await asyncio.wait_for(stays, 1)


async def test_a_place_given_to_who_leaves_at_that_moment_is_not_lost() -> None:
    it = spread()
    slot = await it.enter("a")
    waiting = asyncio.create_task(it.enter("a"))
    await started(waiting)
    slot.leave()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(it.enter("a"), 1)


async def test_resumes_do_not_begin_in_step() -> None:
    it = Spread(at_once=100, max_waiting=100, wait_s=1.0, pause_s=0.05)
    loop, begun = asyncio.get_running_loop(), []

    async def one() -> None:
        await it.enter("a")
        begun.append(loop.time())

    await asyncio.gather(*(one() for _ in range(50)))
    assert 0.01 < max(begun) - min(begun) < 1.0
