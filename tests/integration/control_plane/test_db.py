"""The unit of work: what is committed, what is done again, what takes too long."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.db import Database, after_commit, before_commit, sqlstate
from tests.integration.control_plane.gate import gated


@pytest.fixture
async def db(empty_database_url: str) -> AsyncIterator[Database]:
    database = Database(empty_database_url)
    async with database.begin() as session:
        await session.execute(text("CREATE TABLE thing (id int PRIMARY KEY, value int NOT NULL)"))
        await session.execute(text("INSERT INTO thing VALUES (1, 0), (2, 0)"))
    yield database
    await database.aclose()


async def values(db: Database) -> list[int]:
    async with db.begin() as session:
        return list((await session.execute(text("SELECT value FROM thing ORDER BY id"))).scalars())


async def add(session: AsyncSession, *ids: int) -> None:
    for row_id in ids:
        await session.execute(text("UPDATE thing SET value = value + 1 WHERE id = :id"), {"id": row_id})
        await asyncio.sleep(0.2)


async def test_a_block_that_ends_well_is_committed(db: Database) -> None:
    async with db.begin() as session:
        await add(session, 1)
    assert await values(db) == [1, 0]


async def test_a_block_that_fails_is_rolled_back_and_its_hooks_never_run(db: Database) -> None:
    ran: list[str] = []

    async def fail() -> None:
        async with db.begin() as session:
            after_commit(session, lambda: ran.append("hook"))
            await add(session, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert (await values(db), ran) == ([0, 0], [])


async def test_hooks_run_after_the_commit_in_their_order(db: Database) -> None:
    ran: list[int] = []
    async with db.begin() as session:
        for number in (1, 2):
            after_commit(session, lambda number=number: ran.append(number))
        assert ran == []
    assert ran == [1, 2]


async def test_what_is_to_be_done_last_is_committed_with_the_rest(db: Database) -> None:
    async with db.begin() as session:
        before_commit(session, lambda own: add(own, 2))
        await add(session, 1)
        assert list((await session.execute(text("SELECT value FROM thing ORDER BY id"))).scalars()) == [1, 0]
    assert await values(db) == [1, 1]


async def test_what_is_to_be_done_last_takes_the_rest_with_it_when_it_fails(db: Database) -> None:
    async def fail(_: AsyncSession) -> None:
        raise ZeroDivisionError

    async def work() -> None:
        async with db.begin() as session:
            before_commit(session, fail)
            await add(session, 1)

    with pytest.raises(ZeroDivisionError):
        await work()
    assert await values(db) == [0, 0]


async def test_two_that_lock_crosswise_both_get_done(db: Database) -> None:
    await asyncio.gather(db.run(lambda session: add(session, 1, 2)), db.run(lambda session: add(session, 2, 1)))
    assert await values(db) == [2, 2]


async def test_an_error_that_a_repeat_does_not_mend_is_raised_at_once(db: Database) -> None:
    attempts = 0

    async def work(session: AsyncSession) -> None:
        nonlocal attempts
        attempts += 1
        await session.execute(text("INSERT INTO thing VALUES (1, 0)"))

    with pytest.raises(IntegrityError):
        await db.run(work)
    assert attempts == 1


async def test_a_statement_that_takes_too_long_is_ended(empty_database_url: str) -> None:
    db = Database(empty_database_url, statement_timeout_s=0.2)

    async def sleep() -> None:
        async with db.begin() as session:
            await session.execute(text("SELECT pg_sleep(30)"))

    with pytest.raises(DBAPIError) as ended:
        await sleep()
    await db.aclose()
    assert sqlstate(ended.value) == "57014"


async def test_a_lost_connection_is_replaced_by_the_next_use(empty_database_url: str) -> None:
    async with gated(empty_database_url) as (gate, url):
        db = Database(url)
        assert await db.is_reachable(deadline_s=5)
        await gate.close()
        assert not await db.is_reachable(deadline_s=5)
        await gate.open()
        assert await db.is_reachable(deadline_s=5)
        await db.aclose()
