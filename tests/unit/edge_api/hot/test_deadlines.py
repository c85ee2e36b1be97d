"""Waits of one length on a real event loop."""

import asyncio

from edge_api.hot.deadlines import Deadlines

PERIOD_S = 0.1


class Late:
    """Who is late, in turn, and when."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.waits = Deadlines(PERIOD_S)

    def begin(self, name: str) -> None:
        self.waits.start(name, lambda: self.names.append(name))


async def test_a_wait_ends_after_its_period_and_not_before() -> None:
    late = Late()
    late.begin("a")
    await asyncio.sleep(0.08)
    assert late.names == []
    await asyncio.sleep(0.06)
    assert late.names == ["a"]
    assert len(late.waits) == 0


async def test_a_wait_that_was_stopped_never_ends() -> None:
    late = Late()
    late.begin("a")
    late.begin("b")
    late.waits.stop("a")
    late.waits.stop("never begun")
    await asyncio.sleep(0.15)
    assert late.names == ["b"]


async def test_a_wait_that_begins_anew_has_its_whole_period() -> None:
    late = Late()
    late.begin("a")
    late.begin("b")
    await asyncio.sleep(0.07)
    late.begin("a")
    await asyncio.sleep(0.07)
    assert late.names == ["b"]
    await asyncio.sleep(0.07)
    assert late.names == ["b", "a"]


async def test_one_that_is_late_may_end_the_wait_of_another() -> None:
    late = Late()
    late.waits.start("a", lambda: late.waits.stop("b"))
    late.begin("b")
    await asyncio.sleep(0.15)
    assert late.names == []


async def test_one_that_is_late_may_begin_again() -> None:
    late = Late()

    def again() -> None:
        late.names.append("a")
        late.waits.start("a", again)

    late.waits.start("a", again)
    await asyncio.sleep(0.35)
    late.waits.stop("a")
    assert late.names in (["a"] * 2, ["a"] * 3)


async def test_waits_that_begin_after_a_quiet_time_end_as_well() -> None:
    late = Late()
    late.begin("a")
    await asyncio.sleep(0.25)
    late.begin("b")
    await asyncio.sleep(0.15)
    assert late.names == ["a", "b"]


async def test_a_fault_of_one_does_not_keep_the_others_waiting() -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    late = Late()
    late.waits.start("a", lambda: 1 // 0)
    late.begin("b")
    await asyncio.sleep(0.2)
    assert late.names == ["b"]
    assert isinstance(faults[0], ZeroDivisionError)
