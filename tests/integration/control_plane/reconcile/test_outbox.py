"""The relay: nothing is lost while the queue is away, and nothing waits for it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from control_plane.db import Database
from control_plane.reconcile import outbox, repository
from control_plane.reconcile.outbox import LazyPublisher, Relay


class Queue:
    """A queue that can be away; what was handed over, in order."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, dict[str, Any], str]] = []
        self.is_away = False

    def __call__(self, topic: str, payload: dict[str, Any], task_id: str) -> None:
        if self.is_away:
            raise ConnectionRefusedError
        self.taken.append((topic, payload, task_id))


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.aclose()


async def put(db: Database, *keys: str, delay_s: float = 0) -> None:
    async with db.begin() as session:
        for key in keys:
            await repository.put(session, "topic", key, {"key": key}, delay_s)


async def waiting(db: Database) -> list[tuple[str, int]]:
    async with db.engine.connect() as connection:
        return [(key, attempts) for key, attempts in await connection.exec_driver_sql(
            "SELECT key, attempts FROM outbox ORDER BY id")]


async def expire_leases(db: Database) -> None:
    async with db.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE outbox SET locked_until = now() - interval '1 second'")


async def test_a_row_is_handed_over_once_and_then_gone(db: Database) -> None:
    queue = Queue()
    await put(db, "a", "b")
    relay = Relay(db, queue)
    await relay.once()
    await relay.once()
    assert [(topic, payload) for topic, payload, _ in queue.taken] == [("topic", {"key": "a"}), ("topic", {"key": "b"})]
    assert await waiting(db) == []


async def test_a_row_of_a_transaction_that_failed_is_never_handed_over(db: Database) -> None:
    async def fail() -> None:
        async with db.begin() as session:
            await repository.put(session, "topic", "a", {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    queue = Queue()
    await Relay(db, queue).once()
    assert queue.taken == []


async def test_rows_stay_while_the_queue_is_away_and_go_when_it_is_back(db: Database) -> None:
    queue = Queue()
    queue.is_away = True
    await put(db, "a", "b")
    relay = Relay(db, queue)
    await relay.once()
    assert [key for key, _ in await waiting(db)] == ["a", "b"]
    queue.is_away = False
    await expire_leases(db)
    await relay.once()
    assert (len(queue.taken), await waiting(db)) == (2, [])


async def test_a_row_that_failed_waits_before_the_next_attempt(db: Database) -> None:
    queue = Queue()
    queue.is_away = True
    await put(db, "a")
    relay = Relay(db, queue)
    await relay.once()
    queue.is_away = False
    await relay.once()
    assert (queue.taken, await waiting(db)) == ([], [("a", 1)])


async def test_a_row_that_a_dead_replica_held_is_handed_over_by_another(db: Database) -> None:
    await put(db, "a")
    async with db.begin() as session:
        await repository.lease(session, "token of the dead", 60, 10)
    queue = Queue()
    await Relay(db, queue).once()
    assert queue.taken == []
    await expire_leases(db)
    await Relay(db, queue).once()
    assert len(queue.taken) == 1


async def test_two_replicas_share_the_rows(db: Database) -> None:
    queue = Queue()
    await put(db, *(f"key-{number}" for number in range(120)))
    relays = [Relay(db, queue), Relay(db, queue)]
    for _ in range(3):
        await asyncio.gather(*(relay.once() for relay in relays))
    assert len({task_id for _, _, task_id in queue.taken}) == len(queue.taken) == 120


async def test_a_row_that_is_due_later_waits(db: Database) -> None:
    queue = Queue()
    await put(db, "later", delay_s=60)
    await Relay(db, queue).once()
    assert (queue.taken, await waiting(db)) == ([], [("later", 0)])


async def test_equal_rows_that_wait_are_one(db: Database) -> None:
    await put(db, "a", "a")
    await put(db, "a")
    assert await waiting(db) == [("a", 0)]


async def test_a_row_that_is_being_handed_over_does_not_swallow_a_new_one(db: Database) -> None:
    await put(db, "a")
    async with db.begin() as session:
        await repository.lease(session, "token", 60, 10)
    await put(db, "a")
    assert await waiting(db) == [("a", 1), ("a", 0)]


@pytest.mark.parametrize(("attempts", "expected_s"), [(1, 1), (2, 2), (4, 8), (7, 60), (1_000, 60)])
def test_pauses_grow_up_to_a_minute(attempts: int, expected_s: float) -> None:
    assert outbox.backoff_s(attempts) == expected_s


async def test_a_task_reaches_a_real_queue(db: Database, valkey_url: str) -> None:
    await put(db, "a")
    await Relay(db, LazyPublisher(valkey_url)).once()
    async with Redis.from_url(valkey_url) as client:
        (message,) = await client.lrange("cel:celery", 0, -1)
    assert b'"task": "topic"' in message
    assert b'"id": "outbox-' in message


async def test_a_queue_that_refuses_connections_costs_seconds_not_the_row(db: Database) -> None:
    await put(db, "a")
    async with asyncio.timeout(10):
        await Relay(db, LazyPublisher("redis://127.0.0.1:1/0")).once()
    assert await waiting(db) == [("a", 1)]


async def test_a_wiped_queue_gets_new_tasks(db: Database, valkey_url: str) -> None:
    relay = Relay(db, LazyPublisher(valkey_url))
    async with Redis.from_url(valkey_url) as client:
        for key in ("a", "b"):
            await client.flushall()
            await put(db, key)
            await relay.once()
            assert await client.llen("cel:celery") == 1
