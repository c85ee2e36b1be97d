"""Two edges and one Valkey: together they keep every limit, and what is counted is what was used."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from control_plane.contracts.keys import Principal
from edge_api.admission import gate, rates, slots
from edge_api.admission.rates import largest_block, most_in_a_minute
from edge_api.errors import OVER_WHOLE_LIMIT, Refusal
from tests.integration.edge_api.admission.places import Edge, counted, edge
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.admission.parts import key_limit, need, principal, team_limit
from tests.unit.edge_api.builders import MODEL


class Traffic:
    """Requests, how many were let in, and the most that were open at once."""

    def __init__(self, edges: tuple[Edge, ...], who: Principal) -> None:
        self.edges, self.who = edges, who
        self.admitted = self.open = self.peak = 0

    async def one(self, at: int, takes_s: float = 0.002, tokens: int = 5) -> bool:
        granted = await self.edges[at % len(self.edges)].try_admit(need(self.who))
        if granted is None:
            return False
        self.admitted += 1
        self.open += 1
        self.peak = max(self.peak, self.open)
        await asyncio.sleep(takes_s)
        self.open -= 1
        granted.settle(tokens, 0)
        granted.release()
        return True

    async def many(self, count: int, takes_s: float = 0.002) -> None:
        async with asyncio.TaskGroup() as group:
            for at in range(count):
                group.create_task(self.one(at, takes_s))


@pytest.fixture
async def two(valkey_url: str) -> AsyncIterator[tuple[Edge, Edge]]:
    async with edge(valkey_url, "boot_a", 2) as first, edge(valkey_url, "boot_b", 2) as second:
        yield first, second


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(valkey_url) as client:
        yield client


async def test_200_at_once_never_exceed_a_concurrency_limit(two: tuple[Edge, Edge]) -> None:
    traffic = Traffic(two, principal(key_limit(concurrency=20)))
    for _ in range(5):
        await traffic.many(200)
    assert 0 < traffic.peak <= 20
    assert traffic.open == 0


async def test_a_concurrency_limit_is_used_to_the_full(two: tuple[Edge, Edge]) -> None:
    traffic = Traffic(two, principal(key_limit(concurrency=20)))
    await traffic.many(60, takes_s=0.3)
    assert traffic.peak == traffic.admitted == 20


async def test_200_at_once_never_exceed_a_limit_of_requests(two: tuple[Edge, Edge]) -> None:
    traffic = Traffic(two, principal(team_limit(requests=100)))
    await traffic.many(200)
    assert 100 - 2 * largest_block(100) <= traffic.admitted <= 100 <= most_in_a_minute(100, 2)


async def test_what_one_edge_holds_unspent_comes_back_to_the_other(two: tuple[Edge, Edge]) -> None:
    first, second = two
    who = principal(key_limit(requests=100))
    assert await first.try_admit(need(who))
    admitted = 1
    async with asyncio.timeout(10):
        while admitted < 100:
            admitted += await second.try_admit(need(who)) is not None
            await asyncio.sleep(0.01)
    assert await second.try_admit(need(who)) is None


async def test_tokens_are_reserved_before_a_request_is_sent(two: tuple[Edge, Edge]) -> None:
    who = principal(key_limit(tokens=100))
    held = [await two[at % 2].try_admit(need(who, prompt_tokens=20, completion_tokens=20)) for at in range(5)]
    assert sum(granted is not None for granted in held) == 2


async def test_tokens_that_were_not_used_may_be_used_by_others(two: tuple[Edge, Edge]) -> None:
    who = principal(key_limit(tokens=100))
    for at in range(5):
        granted = await two[at % 2].admit(need(who, prompt_tokens=30, completion_tokens=30))
        granted.settle(tokens=10, cost_nusd=0)
        granted.release()
        await asyncio.sleep(2 * rates.CORRECT_S)
    assert await two[0].try_admit(need(who, prompt_tokens=30, completion_tokens=30)) is None
    assert await two[0].try_admit(need(who, prompt_tokens=30, completion_tokens=20)) is not None


async def test_tokens_used_beyond_the_reservation_count(two: tuple[Edge, Edge], client: Redis) -> None:
    granted = await two[0].admit(need(principal(key_limit(tokens=1000))))
    granted.settle(tokens=70, cost_nusd=0)
    granted.release()
    await two[0].parts.aclose()
    assert await counted(client, "tokens") == 70


async def test_after_500_requests_the_counters_are_what_was_used(valkey_url: str, client: Redis) -> None:
    async with edge(valkey_url, "boot_a", 2) as first, edge(valkey_url, "boot_b", 2) as second:
        who = principal(key_limit(requests=100_000, tokens=1_000_000, concurrency=1000), team_limit(requests=100_000))
        traffic = Traffic((first, second), who)
        for _ in range(10):
            await traffic.many(50)
        assert traffic.admitted == 500
    assert await counted(client, "requests") == 2 * 500
    assert await counted(client, "tokens") == 5 * 500
    assert await counted(client, "open") == 0


async def test_a_request_larger_than_the_whole_limit_is_told_so(two: tuple[Edge, Edge]) -> None:
    with pytest.raises(Refusal) as refused:
        await two[0].admit(need(principal(key_limit(tokens=100)), prompt_tokens=200))
    assert refused.value.fault is OVER_WHOLE_LIMIT
    assert refused.value.metadata == {"limit": "key.tokens_per_minute"}
    assert (b"x-should-retry", b"false") in refused.value.headers()


async def test_a_refused_request_holds_nothing(two: tuple[Edge, Edge], client: Redis) -> None:
    who = principal(key_limit(requests=1000, tokens=1000, concurrency=1))
    granted = await two[0].admit(need(who))
    assert [await two[at % 2].try_admit(need(who)) for at in range(20)] == [None] * 20
    granted.release()
    for one in two:
        await one.parts.aclose()
    assert await counted(client, "requests") == 1
    assert await counted(client, "tokens") == 0


async def test_a_slot_is_free_on_the_other_edge_as_soon_as_its_request_ends(two: tuple[Edge, Edge]) -> None:
    who = principal(key_limit(concurrency=1))
    for at in range(20):
        (await two[at % 2].admit(need(who))).release()


async def test_a_slot_released_twice_is_one_slot(two: tuple[Edge, Edge]) -> None:
    who = principal(key_limit(concurrency=2))
    first, _ = [await two[0].admit(need(who)) for _ in range(2)]
    first.release()
    first.release()
    assert await two[1].try_admit(need(who)) is not None
    assert await two[1].try_admit(need(who)) is None


async def test_who_gives_up_waiting_leaves_no_slot_behind(two: tuple[Edge, Edge]) -> None:
    who = principal(key_limit(concurrency=50))
    waiting = [asyncio.create_task(two[0].admit(need(who))) for _ in range(50)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(5):
        granted = [await two[1].try_admit(need(who)) for _ in range(50)]
        while granted.count(None):
            await asyncio.sleep(0.05)
            granted = [grant or await two[1].try_admit(need(who)) for grant in granted]


async def test_a_killed_edges_slots_come_free_by_themselves(
        valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "HELD_S", 1.5)
    monkeypatch.setattr(slots, "RENEW_S", 0.3)
    monkeypatch.setattr(gate, "TEND_S", 0.1)
    who = principal(key_limit(concurrency=2))
    async with edge(valkey_url, "boot_b", 2) as second:
        async with edge(valkey_url, "boot_a", 2, dies=True) as first:
            assert [await first.try_admit(need(who)) is not None for _ in range(3)] == [True, True, False]
            await asyncio.sleep(2)
            assert await second.try_admit(need(who)) is None, "a living edge's slots stay its own"
        await asyncio.sleep(1.7)
        assert await second.try_admit(need(who)) is not None


async def test_a_limit_for_a_model_binds_that_model_alone(two: tuple[Edge, Edge]) -> None:
    who = principal(key_limit(requests=1, model_id=MODEL))
    assert await two[0].try_admit(need(who)) is not None
    assert await two[1].try_admit(need(who)) is None
    assert await two[1].try_admit(need(who, model_id="other/model")) is not None


async def test_headers_tell_of_the_tightest_limit(two: tuple[Edge, Edge]) -> None:
    who = principal(key_limit(requests=500), team_limit(requests=10, tokens=9000))
    headers = (await two[0].admit(need(who))).headers
    assert b"x-ratelimit-limit-requests: 10\r\nx-ratelimit-remaining-requests: 9\r\n" in headers
    assert b"x-ratelimit-limit-tokens: 9000\r\nx-ratelimit-remaining-tokens: 8990\r\n" in headers


async def test_a_refusal_says_which_limit_and_when(two: tuple[Edge, Edge]) -> None:
    who = principal(key_limit(requests=1))
    await two[0].admit(need(who))
    with pytest.raises(Refusal) as refused:
        await two[1].admit(need(who))
    headers = dict(refused.value.headers())
    assert (refused.value.status, refused.value.metadata["limit"]) == (429, "key.requests_per_minute")
    assert 55 <= int(headers[b"retry-after"]) <= 90
    assert headers[b"x-ratelimit-remaining-requests"] == b"0"


async def test_a_refusal_is_not_asked_for_again_at_once(two: tuple[Edge, Edge]) -> None:
    who = principal(key_limit(requests=1))
    await two[0].admit(need(who))
    await two[0].try_admit(need(who))
    calls = two[0].figure("valkey_calls_total")
    for _ in range(100):
        assert await two[0].try_admit(need(who)) is None
    assert two[0].figure("valkey_calls_total") - calls <= 2


async def test_an_edge_in_use_seldom_asks(two: tuple[Edge, Edge]) -> None:
    traffic = Traffic(two, principal(key_limit(requests=10**6, tokens=10**8)))
    calls = two[0].figure("valkey_calls_total")
    for at in range(1000):
        assert await traffic.one(2 * at, takes_s=0)
    assert two[0].figure("valkey_calls_total") - calls < 100


async def test_an_edge_that_ends_gives_its_slots_back(valkey_url: str, client: Redis) -> None:
    async with edge(valkey_url) as first:
        (await first.admit(need(principal(key_limit(concurrency=100))))).release()
    assert await counted(client, "open") == 0


async def test_what_is_idle_is_forgotten(two: tuple[Edge, Edge], client: Redis) -> None:
    (await two[0].admit(need(principal(key_limit(concurrency=100))))).release()
    await until(lambda: counted_is_zero(client), 2 * slots.RENEW_S)


async def counted_is_zero(client: Redis) -> bool:
    return await counted(client, "open") == 0
