"""Who is asked to leave, when, and how often."""

import asyncio
from contextlib import suppress

import pytest

from edge_api.routing import evacuation
from edge_api.routing.evacuation import BATCH, Evacuator
from edge_api.snapshot.holder import TableHolder
from edge_api.upstream.pool import Address
from tests.unit.edge_api.builders import snapshot

WEST, EAST = ("127.0.0.1", 9000, False), ("127.0.0.1", 9001, False)


class Request:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def evacuate(self) -> None:
        self.asked += 1


class World:
    """An evacuator, its table, and what is open where."""

    def __init__(self) -> None:
        self.holder = TableHolder()
        self.open: dict[Address, list[Request]] = {WEST: [Request()], EAST: [Request()]}
        self.evacuator = Evacuator(self.holder, lambda address: list(self.open[address]))

    def evacuates(self, *datacenters: str) -> None:
        built = snapshot(weights={"us": 0 if "us" in datacenters else 1, "eu": 1})
        places = [place.model_copy(update={"evacuate": place.id in datacenters}) for place in built.datacenters]
        self.holder.take(built.model_copy(update={"datacenters": places}))

    def asked(self, address: Address) -> list[int]:
        return [request.asked for request in self.open[address]]


@pytest.fixture
def world() -> World:
    return World()


async def test_without_a_snapshot_nobody_is_asked(world: World) -> None:
    await world.evacuator.look()
    assert world.asked(WEST) == [0]


async def test_only_what_is_open_in_the_evacuated_datacenter_is_asked_and_once(world: World) -> None:
    world.evacuates("us")
    for _ in range(3):
        await world.evacuator.look()
    assert (world.asked(WEST), world.asked(EAST)) == ([1], [0])


async def test_what_is_still_there_is_asked_again_after_a_while(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evacuation, "AGAIN_S", 0.05)
    world.evacuates("us")
    await world.evacuator.look()
    world.open[WEST].append(Request())
    await asyncio.sleep(0.1)
    await world.evacuator.look()
    assert world.asked(WEST) == [2, 1]


async def test_an_evacuation_that_ends_and_begins_anew_asks_at_once(world: World) -> None:
    for places in (("us",), (), ("us",)):
        world.evacuates(*places)
        await world.evacuator.look()
    assert world.asked(WEST) == [2]


async def test_many_are_asked_a_few_at_a_time(world: World) -> None:
    world.open[WEST] = [Request() for _ in range(3 * BATCH)]
    world.evacuates("us")
    looking = asyncio.create_task(world.evacuator.look())
    await asyncio.sleep(0)
    assert sum(world.asked(WEST)) == BATCH
    await looking
    assert sum(world.asked(WEST)) == 3 * BATCH


async def test_it_follows_the_table_by_itself(world: World) -> None:
    running = asyncio.create_task(world.evacuator.run())
    await asyncio.sleep(0.02)
    world.evacuates("us")
    await asyncio.sleep(3 * evacuation.FOLLOW_S)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert world.asked(WEST) == [1]
