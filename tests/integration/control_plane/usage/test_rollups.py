"""Hourly sums: asked for with the records, rebuilt as often as anyone likes, equal to the records."""

import asyncio
from datetime import timedelta

from control_plane.contracts.clock import utc
from control_plane.usage import intake, tasks
from tests.integration.control_plane.usage.conftest import Metered

TOTALS = "SELECT {count}, sum(prompt_tokens)::int, sum(cost_usd)::text FROM {table}"


async def test_a_batch_asks_for_the_sums_of_its_hours_once(metered: Metered) -> None:
    records = [metered.maker.record(metered.now_s - 7_200), metered.maker.record(metered.now_s)]
    await metered.ship(*records)
    await metered.ship(metered.maker.record(metered.now_s))
    asked = {key for (key,) in await metered.rows("SELECT key FROM outbox WHERE topic = 'usage.rollup'")}
    assert {intake.hour_of(record.request_id).isoformat() for record in records} <= asked
    assert len(asked) <= 3  # one more if the hour turned meanwhile


async def test_a_repeated_batch_asks_for_nothing(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    await metered.ship(record)
    async with metered.replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql("DELETE FROM outbox")
    await metered.ship(record)
    assert await metered.rows("SELECT key FROM outbox") == []


async def test_sums_equal_the_records_however_often_and_at_once_they_are_rebuilt(metered: Metered) -> None:
    records = [metered.maker.record(metered.now_s - number * 400) for number in range(30)]
    await metered.ship(*records)
    hours = [hour.isoformat() for hour in intake.hours_of(records)] * 3
    db = metered.replica.context.db
    await asyncio.gather(*(tasks.rebuild_rollup(db, {"hour": hour}) for hour in hours))
    expected = await metered.rows(TOTALS.format(count="count(*)", table="usage_record"))
    assert await metered.rows(TOTALS.format(count="sum(requests)", table="usage_rollup_hourly")) == expected


async def test_a_late_record_is_in_the_sums_after_the_next_rebuild(metered: Metered) -> None:
    hour = intake.hour_of(metered.maker.record(metered.now_s - 10_000).request_id)
    inside_s = hour.timestamp() + 60
    db = metered.replica.context.db
    for expected in (1, 2):
        await metered.ship(metered.maker.record(inside_s + expected))
        await tasks.rebuild_rollup(db, {"hour": hour.isoformat()})
        assert await metered.rows("SELECT sum(requests)::int FROM usage_rollup_hourly") == [(expected,)]


async def test_the_catch_up_sums_the_last_hours(metered: Metered) -> None:
    an_hour_ago_s = (utc(metered.now_s) - timedelta(hours=1)).timestamp()
    await metered.ship(metered.maker.record(metered.now_s), metered.maker.record(an_hour_ago_s))
    await tasks.catch_up_rollups(metered.replica.context.db, metered.replica.context.clock)
    assert await metered.rows("SELECT sum(requests)::int FROM usage_rollup_hourly") == [(2,)]
