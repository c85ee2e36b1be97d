"""What was spent: booked with the records, equal to their sum whatever is repeated, and counted anew to the same."""

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.usage import Outcome
from tests.integration.control_plane.usage.conftest import Metered
from tests.unit.control_plane.usage.frames import Maker

DAY_S = 86_400.0
SPEND = ("SELECT scope, scope_id, interval, window_start, team_id, spent_usd FROM spend "
         "ORDER BY scope, scope_id, interval, window_start")
SUMS = """
    SELECT owner.scope, owner.id, windows.interval, windows.start AT TIME ZONE 'UTC', record.team_id,
        sum(record.cost_usd)
    FROM usage_record AS record
    CROSS JOIN LATERAL (VALUES ('team', record.team_id), ('key', record.key_id)) AS owner (scope, id)
    CROSS JOIN LATERAL (VALUES
        ('daily', date_trunc('day', record.day::timestamp)), ('weekly', date_trunc('week', record.day::timestamp)),
        ('monthly', date_trunc('month', record.day::timestamp)), ('lifetime', timestamp '1970-01-01')
    ) AS windows (interval, start)
    GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4"""


async def other_key(metered: Metered) -> Maker:
    """A second key of the team."""
    return Maker(metered.maker.team_id, (await metered.replica.key(metered.maker.team_id)).id)


async def shipped_at_random(metered: Metered, seed: int) -> None:
    """300 records of 40 days and two keys, shipped three times over in shuffled batches by two edges at once."""
    order = random.Random(seed)
    edges = [metered.edge, await metered.replica.enrolled(IdentityKind.EDGE, "eu-north-1")]
    makers = [metered.maker, await other_key(metered)]
    frames = [order.choice(makers).record(metered.now_s - order.random() * 34 * DAY_S, prompt_tokens=600 + number)
              for number in range(300)]
    for _ in range(3):
        order.shuffle(frames)
        await asyncio.gather(*(
            metered.ship(*frames[start:start + 60], edge=edges[start // 60 % 2]) for start in range(0, 300, 60)))


async def recounted(metered: Metered) -> dict[str, Any]:
    answer = await metered.replica.client.post(
        "/operator/v1/teams/acme/recount", headers=await metered.replica.operator())
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_record_is_booked_for_its_team_and_its_key_in_every_interval(metered: Metered) -> None:
    await metered.ship(metered.maker.record(datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()))
    starts = {"daily": (2026, 11, 29), "lifetime": (1970, 1, 1), "monthly": (2026, 11, 1), "weekly": (2026, 11, 23)}
    expected = [
        (scope, scope_id, interval, datetime(*start, tzinfo=UTC), metered.maker.team_id, Decimal("0.000416"))
        for scope, scope_id in (("key", metered.maker.key_id), ("team", metered.maker.team_id))
        for interval, start in starts.items()]
    assert await metered.rows(SPEND) == expected


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_spend_equals_the_records_after_shuffled_repeated_batches_from_two_edges(
        metered: Metered, seed: int) -> None:
    await shipped_at_random(metered, seed)
    assert len(await metered.rows(SPEND)) > 100
    assert await metered.rows(SPEND) == await metered.rows(SUMS)


async def test_a_repeat_in_the_same_batch_is_booked_once(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    await metered.ship(record, record)
    assert await metered.rows(SPEND) == await metered.rows(SUMS)


async def test_of_two_contradicting_records_the_stored_one_is_booked(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    other = metered.maker.record(metered.now_s, request_id=record.request_id, completion_tokens=51)
    await metered.ship(other, record)
    assert await metered.rows(SPEND) == await metered.rows(SUMS)


async def test_what_goes_into_quarantine_is_not_booked(metered: Metered) -> None:
    await metered.ship(metered.maker.record(metered.now_s, cost_usd="5"))
    assert await metered.rows(SPEND) == []


async def test_a_free_record_books_nothing(metered: Metered) -> None:
    await metered.ship(metered.maker.record(metered.now_s, outcome=Outcome.EDGE_LOST))
    assert await metered.rows(SPEND) == []


async def test_a_late_record_counts_in_the_window_of_its_own_day(metered: Metered) -> None:
    await metered.ship(metered.maker.record(metered.now_s - 20 * DAY_S))
    day = datetime.fromtimestamp(metered.now_s - 20 * DAY_S, UTC).date()
    starts: Sequence[Any] = await metered.rows("SELECT DISTINCT window_start FROM spend WHERE interval = 'daily'")
    assert [start.date() for (start,) in starts] == [day]


async def test_counting_anew_gives_the_same(metered: Metered) -> None:
    await shipped_at_random(metered, 4)
    before = await metered.rows(SPEND)
    assert (await recounted(metered))["corrected_usd"] == "0"
    assert await metered.rows(SPEND) == before


@pytest.mark.parametrize("fault", [
    "DELETE FROM spend", "UPDATE spend SET spent_usd = spent_usd + 1",
    "INSERT INTO spend SELECT 'key', 'key_of_nobody', 'daily', now(), id, 1 FROM team"])
async def test_counting_anew_mends_what_was_wrong(metered: Metered, fault: str) -> None:
    await metered.ship(metered.maker.record(metered.now_s))
    async with metered.replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql(fault)
    await recounted(metered)
    assert await metered.rows(SPEND) == await metered.rows(SUMS)


async def test_counting_anew_says_by_how_much_it_was_wrong_and_is_audited(metered: Metered) -> None:
    await metered.ship(metered.maker.record(metered.now_s))
    async with metered.replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE spend SET spent_usd = 1")
    assert await recounted(metered) == {
        "team_id": metered.maker.team_id, "spent_usd": "0.000416", "corrected_usd": "-0.999584"}
    assert await metered.rows("SELECT actor, before, after FROM audit_event WHERE action = 'team.recount'") == [
        ("operator:olga", {"spent_usd": "1"}, {"spent_usd": "0.000416"})]


async def test_counting_anew_while_records_arrive_misses_none(metered: Metered) -> None:
    async def ship() -> None:
        for number in range(10):
            await metered.ship(*(metered.maker.record(metered.now_s - number) for _ in range(20)))

    await asyncio.gather(ship(), ship(), *(recounted(metered) for _ in range(6)))
    assert await metered.rows(SPEND) == await metered.rows(SUMS)


async def test_counting_one_team_leaves_the_others_alone(metered: Metered) -> None:
    team = await metered.replica.team("other")
    other = Maker(team.id, (await metered.replica.key(team.id)).id)
    await metered.ship(metered.maker.record(metered.now_s), other.record(metered.now_s + 1))
    await recounted(metered)
    assert await metered.rows(SPEND) == await metered.rows(SUMS)
