"""One tick of the runner over work that is held in memory."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from control_plane.reconcile.runner import MAX_LOOKS, tick


@dataclass
class Counted:
    """Items that each take some looks; `broken` ones raise."""

    looks_left: dict[str, int]
    broken: dict[str, Exception] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)
    name: str = "counted"
    channel: str = "counted"

    async def lease(self, token: str) -> Sequence[str]:
        self.held = dict.fromkeys(self.looks_left, token)
        return list(self.held)

    async def advance(self, item: str, token: str) -> bool:
        assert self.held[item] == token
        self.looks.append(item)
        if item in self.broken:
            raise self.broken[item]
        self.looks_left[item] -= 1
        return self.looks_left[item] > 0

    async def release(self, item: str, token: str) -> None:
        assert self.held.pop(item) == token


async def test_an_item_is_moved_on_as_far_as_it_goes() -> None:
    work = Counted({"a": 3})
    await tick(work)
    assert (work.looks, work.held) == (["a"] * 3, {})


async def test_an_item_cannot_hold_the_replica_for_ever() -> None:
    work = Counted({"a": MAX_LOOKS * 2, "b": 1})
    await tick(work)
    assert (len(work.looks), work.looks[-1]) == (MAX_LOOKS + 1, "b")


async def test_a_broken_item_keeps_its_lease_and_does_not_stop_the_others() -> None:
    work = Counted({"a": 1, "b": 1}, broken={"a": ValueError("bug")})
    await tick(work)
    assert (work.looks, list(work.held)) == (["a", "b"], ["a"])


async def test_an_absent_database_ends_the_tick() -> None:
    work = Counted({"a": 1, "b": 1}, broken={"a": ConnectionRefusedError()})
    with pytest.raises(ConnectionRefusedError):
        await tick(work)
    assert work.looks == ["a"]


async def test_a_cancelled_tick_passes_the_cancellation_on() -> None:
    work = Counted({"a": 1}, broken={"a": asyncio.CancelledError()})  # type: ignore[dict-item]
    with pytest.raises(asyncio.CancelledError):
        await tick(work)
