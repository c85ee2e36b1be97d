"""Hints between replicas: they arrive, they may be lost, nobody hangs on them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from control_plane.db import Database, notify
from control_plane.wakeup import Wakeups
from tests.integration.control_plane.gate import gated


@contextlib.asynccontextmanager
async def listening(url: str) -> AsyncIterator[Wakeups]:
    wakeups = Wakeups(url)
    task = asyncio.create_task(wakeups.run())
    try:
        async with asyncio.timeout(20):
            await wakeups.listening.wait()
        yield wakeups
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def say(url: str, channel: str) -> None:
    db = Database(url)
    async with db.begin() as session:
        await notify(session, channel)
    await db.aclose()


async def test_a_hint_wakes_who_waits_in_every_replica(empty_database_url: str) -> None:
    async with listening(empty_database_url) as one, listening(empty_database_url) as other:
        waits = asyncio.gather(one.wait("news", 20), other.wait("news", 20), one.wait("other", 0.5))
        await asyncio.sleep(0.05)
        await say(empty_database_url, "news")
        assert await waits == [True, True, False]


async def test_a_hint_between_reading_and_waiting_is_not_lost(empty_database_url: str) -> None:
    async with listening(empty_database_url) as wakeups:
        before = wakeups.count("news")
        await say(empty_database_url, "news")
        async with asyncio.timeout(20):
            while wakeups.count("news") == before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await wakeups.wait("news", 0, after=before)


async def test_a_hint_of_a_transaction_that_fails_never_comes(empty_database_url: str) -> None:
    async with listening(empty_database_url) as wakeups:
        db = Database(empty_database_url)
        with contextlib.suppress(ZeroDivisionError):
            async with db.begin() as session:
                await notify(session, "news")
                raise ZeroDivisionError
        await db.aclose()
        assert not await wakeups.wait("news", 0.3)


async def test_a_wait_ends_by_itself(empty_database_url: str) -> None:
    assert not await Wakeups(empty_database_url).wait("news", 0.01)


async def test_a_poll_ends_at_the_first_hint_of_any_of_its_channels(empty_database_url: str) -> None:
    async with listening(empty_database_url) as wakeups:
        poll = asyncio.create_task(wakeups.poll({"news": wakeups.count("news"), "other": wakeups.count("other")}, 30))
        await asyncio.sleep(0.05)
        assert not poll.done()
        await say(empty_database_url, "other")
        async with asyncio.timeout(5):
            await poll


async def test_closing_ends_polls_now_and_from_now_on_and_no_other_wait(empty_database_url: str) -> None:
    wakeups = Wakeups(empty_database_url)
    poll, wait = asyncio.create_task(wakeups.poll({"news": 0}, 30)), asyncio.create_task(wakeups.wait("news", 30))
    await asyncio.sleep(0)
    wakeups.close()
    async with asyncio.timeout(1):
        await poll
        await wakeups.poll({"news": 0}, 30)
    assert not wait.done()
    wait.cancel()
    await asyncio.gather(wait, return_exceptions=True)


async def test_who_read_before_a_reconnect_and_waits_after_it_is_woken(empty_database_url: str) -> None:
    wakeups = Wakeups(empty_database_url)
    before = wakeups.count("news")  # read, and not yet waiting, while hints are lost
    task = asyncio.create_task(wakeups.run())
    async with asyncio.timeout(20):
        await wakeups.listening.wait()
    assert await wakeups.wait("news", 0, after=before)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_after_a_lost_connection_everybody_is_woken_to_look_again(empty_database_url: str) -> None:
    async with gated(empty_database_url) as (gate, url), listening(url) as wakeups:
        waiting = asyncio.create_task(wakeups.wait("news", 30))
        await asyncio.sleep(0)
        await gate.close()
        await gate.open()
        assert await waiting
        async with asyncio.timeout(20):
            await wakeups.listening.wait()
        waiting = asyncio.create_task(wakeups.wait("news", 30))
        await asyncio.sleep(0)
        await say(empty_database_url, "news")
        assert await waiting
