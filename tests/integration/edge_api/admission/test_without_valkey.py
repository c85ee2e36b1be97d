"""Valkey stopped, killed, wiped, full, started again: decisions within 50 ms, by this edge's own share, never a 401."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from control_plane.contracts.clock import SystemClock
from control_plane.contracts.keys import Principal
from edge_api.admission import gate, line, slots
from edge_api.admission.rates import share
from edge_api.errors import Refusal
from tests.integration.edge_api.admission.places import Edge, OwnValkey, edge, own_valkey
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.admission.parts import key_limit, need, principal

WITHIN_S = 0.05
LATE_S = 0.02


@pytest.fixture
def valkey() -> Iterator[OwnValkey]:
    with own_valkey() as valkey:
        yield valkey


@pytest.fixture
async def one(valkey: OwnValkey) -> AsyncIterator[Edge]:
    async with edge(valkey.url, edges=4) as one:
        yield one


def is_up(one: Edge) -> bool:
    return one.figure("valkey_up") == 1


async def how_late_s(one: Edge, who: Principal, count: int) -> float:
    """By how much the last of so many requests at once was answered, yes or 429, after a timer of 50 ms that was set
    with them: a busy machine is late with both."""
    clock, took, statuses = SystemClock(), list[float](), {429}

    async def ask() -> None:
        try:
            (await one.admit(need(who))).release()
        except Refusal as refused:
            statuses.add(refused.status)
        took.append(clock.monotonic_s())

    async def timer() -> float:
        await asyncio.sleep(WITHIN_S)
        return clock.monotonic_s()

    end = asyncio.create_task(timer())
    await asyncio.gather(*(ask() for _ in range(count)))
    assert statuses == {429}
    return max(took) - await end


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_who_waits_when_valkey_is_lost_is_answered_in_time(valkey: OwnValkey, one: Edge, way: str) -> None:
    await one.admit(need(principal(key_limit(requests=10))))
    getattr(valkey, way)()
    who = principal(key_limit(1000, 100_000, 50, key_id="key_2"), key_id="key_2")
    assert await how_late_s(one, who, 100) < LATE_S
    assert not is_up(one)


async def test_once_lost_nobody_waits_for_valkey(valkey: OwnValkey, one: Edge) -> None:
    who = principal(key_limit(requests=1000, tokens=100_000, concurrency=50))
    valkey.stop()
    await one.try_admit(need(who))
    for _ in range(20):
        granted = one.parts.gate.admit_now(need(who))
        assert granted is not None
        granted.release()
    assert await how_late_s(one, who, 1) < -WITHIN_S / 2


async def test_without_valkey_an_edge_lets_in_its_share(valkey: OwnValkey, one: Edge) -> None:
    who = principal(key_limit(requests=100))
    valkey.kill()
    held = [await one.try_admit(need(who)) for _ in range(100)]
    assert sum(grant is not None for grant in held) == share(100, 4) == 25
    assert one.refused == {"key.requests_per_minute": 75}


async def test_what_was_let_in_before_counts_in_the_share(valkey: OwnValkey, one: Edge) -> None:
    who = principal(key_limit(requests=100))
    assert all([await one.try_admit(need(who)) for _ in range(20)])
    valkey.kill()
    await one.try_admit(need(principal(key_limit(requests=10**6, key_id="key_2"), key_id="key_2")))
    assert sum([await one.try_admit(need(who)) is not None for _ in range(100)]) <= 25 - 20 + 6


async def test_open_streams_count_in_the_share_of_a_concurrency_limit(valkey: OwnValkey, one: Edge) -> None:
    who = principal(key_limit(concurrency=8))
    held = [await one.admit(need(who)) for _ in range(5)]
    valkey.kill()
    await until(lambda: not is_up(one))
    assert await one.try_admit(need(who)) is None
    for grant in held:
        grant.release()
    assert [await one.try_admit(need(who)) is not None for _ in range(3)] == [True, True, False]


async def test_valkey_that_goes_on_is_used_again(valkey: OwnValkey, one: Edge) -> None:
    who = principal(key_limit(requests=100))
    valkey.stop()
    assert await one.try_admit(need(who)) is not None
    valkey.go_on()
    await until(lambda: is_up(one))
    assert sum([await one.try_admit(need(who)) is not None for _ in range(100)]) > share(100, 4)


async def test_a_restarted_valkey_is_used_again_and_told_what_happened(valkey: OwnValkey, one: Edge) -> None:
    who = principal(key_limit(tokens=1000, concurrency=100))
    valkey.kill()
    held = [await one.admit(need(who)) for _ in range(7)]
    valkey.restart()
    await until(lambda: is_up(one))

    async def is_told() -> bool:
        return await valkey.uses("tokens") == 70 and await valkey.uses("open") == 7

    await until(is_told)
    for grant in held:
        grant.release()
    assert await one.try_admit(need(who)) is not None


async def test_valkey_that_forgot_the_scripts_is_taught_them_again(valkey: OwnValkey, one: Edge) -> None:
    async with Redis.from_url(valkey.url) as client:
        await client.script_flush()
    assert await one.try_admit(need(principal(key_limit(requests=100)))) is not None
    assert is_up(one)


async def test_valkey_wiped_under_load_costs_no_error_and_no_slot(
        valkey: OwnValkey, one: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "RENEW_S", 0.2)
    who = principal(key_limit(requests=10**6, tokens=10**8, concurrency=40))

    async def requests() -> None:
        for _ in range(150):
            granted = await one.admit(need(who))
            await asyncio.sleep(0.005)
            granted.settle(5, 0)
            granted.release()

    async with Redis.from_url(valkey.url) as client, asyncio.TaskGroup() as group:
        running = [group.create_task(requests()) for _ in range(20)]
        while not all(task.done() for task in running):
            await client.flushall()
            await asyncio.sleep(0.02)
    held = [await one.try_admit(need(who)) for _ in range(50)]
    assert sum(grant is not None for grant in held) == 40
    assert is_up(one)


async def test_a_wiped_valkey_soon_knows_who_is_here(
        valkey: OwnValkey, one: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "RENEW_S", 0.2)
    who = principal(key_limit(concurrency=3))
    held = [await one.admit(need(who)) for _ in range(3)]
    async with Redis.from_url(valkey.url) as client, edge(valkey.url, "boot_2") as other:
        await client.flushall()

        async def knows() -> bool:
            return await valkey.uses("open") == 3

        await until(knows)
        assert await other.try_admit(need(who)) is None
    assert len(held) == 3


async def test_valkey_that_takes_no_writes_is_as_good_as_lost(valkey: OwnValkey, one: Edge) -> None:
    async with Redis.from_url(valkey.url) as client:
        await client.config_set("maxmemory", 1)
        assert await one.try_admit(need(principal(key_limit(requests=100)))) is not None
        assert not is_up(one)
        await asyncio.sleep(0.7)
        assert not is_up(one)
        await client.config_set("maxmemory", 0)
        await until(lambda: is_up(one))


async def test_more_calls_than_may_wait_are_answered_by_this_edge_itself(
        one: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "MAX_QUEUED", 20)
    keys = [principal(key_limit(requests=100, key_id=f"key_{at}"), key_id=f"key_{at}") for at in range(100)]
    granted = await asyncio.gather(*(one.try_admit(need(who)) for who in keys))
    assert all(granted)


async def test_answers_that_are_slow_one_after_the_other_are_not_waited_for(
        one: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LIMITS_WAIT_S", 0.0)
    granted = await one.try_admit(need(principal(key_limit(requests=100, concurrency=8))))
    assert granted is not None
    assert not is_up(one)


async def test_an_edge_that_ends_while_it_looks_for_valkey_ends(valkey: OwnValkey) -> None:
    for at in range(30):
        async with asyncio.timeout(5), edge(valkey.url) as one:
            one.parts.line.give_up()
            await asyncio.sleep(at * 0.0002)


async def test_an_edge_without_valkey_enforces_its_share_for_ever() -> None:
    async with edge(None, edges=2) as one:
        who = principal(key_limit(requests=10))
        assert sum([await one.try_admit(need(who)) is not None for _ in range(20)]) == 5
