"""The simulated database keeps what Postgres keeps at READ COMMITTED, and no more."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from control_plane.db import DEADLOCK
from tests.simulation.database import Row, Session, SimulatedDatabase, Tables
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import Process
from tests.simulation.story import Story


class Bank:
    """A database with two rows, ``a`` and ``b``, of a table ``account``."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        story = Story(lambda: self.loop.now_s)
        self.tables = Tables(self.loop, Random(1), story)
        self.tables.latency_share = 0.0
        self.db = SimulatedDatabase(self.tables, Process("test", story, self.loop))
        self.tables.table("account").update({name: Row(id=name, balance=0) for name in "ab"})

    def run(self, *works: Coroutine[Any, Any, Any]) -> list[Any]:
        """What came of works that run side by side."""
        async def together() -> list[Any]:
            return await asyncio.gather(*works, return_exceptions=True)

        try:
            return self.loop.run_until_complete(together())
        finally:
            self.loop.close()

    def balance(self, name: str) -> int:
        return int(self.tables.table("account")[name].balance)

    async def add(self, name: str, is_locked: bool) -> None:
        """Adds one to what was read a moment ago."""
        async with self.db.begin() as session:
            if is_locked:
                await session.hold(("account", name))
            row = session.find("account", name, anew=True)
            await asyncio.sleep(0.01)
            row.balance += 1


@pytest.fixture
def bank() -> Bank:
    return Bank()


def test_two_that_lock_a_row_go_one_after_the_other(bank: Bank) -> None:
    bank.run(*(bank.add("a", is_locked=True) for _ in range(5)))
    assert bank.balance("a") == 5


def test_a_missing_lock_loses_an_update(bank: Bank) -> None:
    bank.run(*(bank.add("a", is_locked=False) for _ in range(5)))
    assert bank.balance("a") == 1


def test_a_transaction_that_fails_changes_nothing_and_holds_nothing(bank: Bank) -> None:
    async def fail() -> None:
        async with bank.db.begin() as session:
            session.find("account", "a").balance = 7
            await session.flush()
            raise ValueError

    bank.run(fail())
    assert (bank.balance("a"), bank.tables.holders) == (0, {})


def test_what_others_committed_meanwhile_is_seen_by_the_next_statement(bank: Bank) -> None:
    async def read() -> list[int]:
        async with bank.db.begin() as session:
            before = session.find("account", "a").balance
            await asyncio.sleep(0.05)
            return [before, session.find("account", "a").balance, session.find("account", "a", anew=True).balance]

    assert bank.run(read(), bank.add("a", is_locked=True))[0] == [0, 0, 1]


def test_what_is_not_committed_is_seen_by_nobody_else(bank: Bank) -> None:
    async def change(session: Session) -> None:
        session.find("account", "a").balance = 7
        await session.flush()
        await asyncio.sleep(0.02)

    async def write() -> None:
        async with bank.db.begin() as session:
            await change(session)

    async def read() -> int:
        await asyncio.sleep(0.01)
        async with bank.db.begin() as session:
            return int(session.find("account", "a", anew=True).balance)

    assert bank.run(write(), read())[1] == 0
    assert bank.balance("a") == 7


def test_of_two_that_wait_for_each_other_one_is_told_of_a_deadlock(bank: Bank) -> None:
    async def lock(first: str, second: str) -> None:
        async with bank.db.begin() as session:
            await session.hold(("account", first))
            await asyncio.sleep(0.01)
            await session.hold(("account", second))

    errors = [one for one in bank.run(lock("a", "b"), lock("b", "a")) if one is not None]
    assert [type(error) for error in errors] == [DBAPIError]
    assert errors[0].orig.sqlstate == DEADLOCK


def test_a_key_is_there_once(bank: Bank) -> None:
    async def insert() -> bool:
        async with bank.db.begin() as session:
            is_new = await session.insert_missing("account", "c", id="c", balance=1)
            await asyncio.sleep(0.01)
            return bool(is_new)

    assert sorted(bank.run(insert(), insert())) == [False, True]


def test_a_database_that_is_away_takes_no_commit(bank: Bank) -> None:
    async def write() -> None:
        async with bank.db.begin() as session:
            session.find("account", "a").balance = 7
            bank.tables.is_away = True

    assert isinstance(bank.run(write())[0], ConnectionRefusedError)
    assert bank.balance("a") == 0
