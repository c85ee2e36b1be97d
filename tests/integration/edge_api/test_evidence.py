"""What real edges see of real datacenters: they route around a dead one at once, the record follows, and quality is
that of the usage records."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from control_plane.contracts.evidence import ITL_BOUNDS_S, TTFT_BOUNDS_S
from control_plane.contracts.operations import OperationKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.contracts.usage import Attempt
from edge_api.quality.rules import served
from tests.integration.edge_api.waiting import until
from tests.integration.edge_api.watched import PLACES, Watched, watched

DEAD, OTHER, _ = PLACES
AFTER_S = 2.0
ROUTED_S, RECORD_S = 2.0, AFTER_S + 10.0


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[Watched]:
    async with watched(database_url, tmp_path, failover_after_s=AFTER_S) as made:
        yield made


async def failed_over(house: Watched) -> float:
    """When the failover was on record (loop time)."""
    async with asyncio.timeout(30):
        while not (found := await house.operations()):  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.05)
    (one,) = found
    assert (one.kind, one.datacenter, one.automatic) == (OperationKind.FAILOVER, DEAD, True)
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_dead_datacenter_is_routed_around_at_once_and_the_record_follows(house: Watched, hangs: bool) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    load = asyncio.create_task(house.ask_steadily(10, stop))
    await until(lambda: len(house.sent) > 30, 30)
    died_s, died_at_s = loop.time(), time.time()
    if hangs:
        house.places[DEAD].hang()
    else:
        await house.places[DEAD].die()
    recorded_s = await failed_over(house) - died_s
    await asyncio.sleep(1.0)
    stop.set()
    await load
    await until(lambda: recorded(house), 15)
    assert Counter(one.status for one in house.sent if one.at_s > died_s + ROUTED_S) == {
        200: sum(one.at_s > died_s + ROUTED_S for one in house.sent)}
    met = await house.rows(
        "SELECT max(opened_at) FROM usage_record WHERE attempts @> CAST(:dead AS jsonb) AND opened_at > "
        "to_timestamp(:died)", dead=f'[{{"datacenter_id": "{DEAD}", "failed": true}}]', died=died_at_s)
    last_met_s = met[0][0].timestamp() - died_at_s if met[0][0] else 0.0
    assert last_met_s <= ROUTED_S
    assert AFTER_S <= recorded_s <= RECORD_S
    assert await house.world.traffic(DEAD) is TrafficState.FAILED


async def recorded(house: Watched) -> bool:
    """Whether every request that was answered has its record."""
    [[count]] = await house.rows("SELECT count(*) FROM usage_record")
    return bool(count >= sum(one.status == 200 for one in house.sent))


async def test_quality_is_that_of_the_usage_records(house: Watched) -> None:
    house.places[OTHER].fails = True
    for turn in range(60):
        await house.ask(turn % 2, turn)
    await until(lambda: recorded(house), 15)

    async def told() -> bool:
        [[told]] = await house.rows("SELECT coalesce(sum(succeeded + failed + excluded), 0) FROM quality_minute")
        [[made]] = await house.rows("SELECT coalesce(sum(jsonb_array_length(attempts)), 0) FROM usage_record")
        return bool(told == made)

    await until(told, 15)
    rows = await house.rows("SELECT attempts, finish_reason, prompt_tokens, completion_tokens FROM usage_record")
    outcomes: dict[str, Counter[str]] = {}
    for attempts, finish, *_ in rows:
        tried = msgspec.convert(attempts, list[Attempt])
        for at, attempt in enumerate(tried):
            is_good = served(attempt, at == len(tried) - 1 and finish == "error")
            name = "excluded" if is_good is None else "succeeded" if is_good else "failed"
            outcomes.setdefault(attempt.datacenter_id, Counter())[name] += 1
    counted = await house.rows(
        "SELECT datacenter_id, sum(succeeded), sum(failed), sum(excluded) FROM quality_minute GROUP BY datacenter_id")
    assert {row[0]: tuple(map(int, row[1:])) for row in counted} == {
        place: (counts["succeeded"], counts["failed"], counts["excluded"]) for place, counts in outcomes.items()}
    assert outcomes[OTHER]["failed"] > 0
    sums = await house.rows("SELECT sum(prompt_tokens), sum(completion_tokens) FROM quality_minute")
    assert tuple(map(int, sums[0])) == (sum(row[2] for row in rows), sum(row[3] for row in rows))
    alone = [row for row in rows if len(row[0]) == 1 and not row[0][0].get("failed")]
    buckets = await house.rows(
        "SELECT sum((SELECT sum(v) FROM unnest(ttft) v)), sum((SELECT sum(v) FROM unnest(itl) v)), "
        "max(cardinality(ttft)), max(cardinality(itl)) FROM quality_minute")
    assert tuple(map(int, buckets[0])) == (len(alone), len(alone), len(TTFT_BOUNDS_S) + 1, len(ITL_BOUNDS_S) + 1)


async def test_a_vote_does_not_wait_for_the_next_poll(house: Watched) -> None:
    """Polls wait for 4 s; a loss takes half a second to see and the vote a second to arrive."""
    began_s = asyncio.get_running_loop().time()
    await house.places[DEAD].die()

    async def is_told() -> bool:
        return any(vote.edges == 2 for vote in (await house.world.status()).votes)

    await until(is_told, 5)
    assert asyncio.get_running_loop().time() - began_s < 3.5
