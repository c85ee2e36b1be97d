"""Samples of what agents report, and what is read from them."""

from datetime import timedelta

from control_plane.capacity import facts, repository, service, tasks
from control_plane.capacity.demand import Forecast
from control_plane.contracts.deployment import PoolRole
from tests.integration.control_plane.capacity.conftest import Capacity
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST, WEST

DECODE, PREFILL = (f"{WEST}-a-glm", PoolRole.DECODE), (f"{WEST}-a-glm", PoolRole.PREFILL)


async def read(capacity: Capacity) -> facts.Facts:
    async with capacity.world.replica.context.db.begin() as session:
        return await facts.read(session)


async def test_a_minute_keeps_the_highest_of_its_reports(capacity: Capacity) -> None:
    await capacity.run("DELETE FROM capacity_sample")
    agent = capacity.world.agents[WEST]
    for inflight in (3, 9, 4):
        agent.inflight = inflight
        await agent.sync()
    rows = await capacity.run("SELECT sum(reports), max(inflight), max(queued) FROM capacity_sample "
                              "WHERE deployment_id = :id", id=f"{WEST}-a-glm")
    assert [tuple(row) for row in rows] == [(3, 9, 0)]


async def test_what_an_agent_could_not_read_is_null_and_hides_nothing(capacity: Capacity) -> None:
    await capacity.run("DELETE FROM capacity_sample")
    agent = capacity.world.agents[WEST]
    agent.inflight = None
    await agent.sync()
    assert [row[0] for row in await capacity.run("SELECT inflight FROM capacity_sample")] == [None]
    agent.inflight = 7
    await agent.sync()
    agent.inflight = None
    await agent.sync()
    assert [row[0] for row in await capacity.run("SELECT max(inflight) FROM capacity_sample")] == [7]


async def test_a_report_of_another_fleets_deployment_leaves_no_sample(capacity: Capacity) -> None:
    await capacity.run("DELETE FROM capacity_sample")
    west, east = capacity.world.agents[WEST], capacity.world.agents[EAST]
    west.desired = east.desired
    await west.sync()
    assert await capacity.run("SELECT 1 FROM capacity_sample") == []


async def test_decode_is_asked_for_all_requests_and_prefill_for_those_that_wait(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 12, queued=3, kv_usage=0.4)
    demand = (await read(capacity)).demand
    assert (demand[DECODE].now, demand[DECODE].kv_usage, demand[DECODE].coverage) == (12, 0.4, 1.0)
    assert (demand[PREFILL].now, demand[PREFILL].kv_usage) == (3, None)


async def test_the_peak_of_a_model_is_its_highest_minute_over_all_datacenters(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 12, minutes=20)
    await capacity.sampled(EAST, 5, minutes=10)
    assert (await read(capacity)).observed.peaks == {MODEL: 17}


async def test_a_peak_is_forgotten_after_thirty_minutes(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 90, minutes=3, days_ago=31 / 1_440)
    await capacity.sampled(WEST, 4, minutes=20)
    assert (await read(capacity)).observed.peaks == {MODEL: 4}


async def test_the_forecast_is_read_from_the_same_time_on_earlier_days(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 10, minutes=60)
    for day in range(1, 8):
        await capacity.sampled(WEST, 10, minutes=60, days_ago=day)
        await capacity.sampled(WEST, 30, queued=6, minutes=60, days_ago=day - 1 / 24)
    assert (await read(capacity)).demand[DECODE].forecast == Forecast(expected=30, upper=30)


async def test_days_that_were_not_sampled_give_no_forecast(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 10, minutes=60)
    assert (await read(capacity)).demand[DECODE].forecast is None


async def test_headroom_counts_ready_replicas_against_the_peak_without_those_that_leave(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 10)
    async with capacity.world.replica.context.db.begin() as session:
        now = (await service.headroom(session))[MODEL].total
        after = (await service.headroom(session, leaving=[EAST]))[MODEL].total
    assert (now.ready, now.peak, now.required, now.headroom) == (40, 10, 12, 28)
    assert (after.ready, after.headroom) == (20, 8)


async def test_old_samples_and_plans_are_removed(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 1, minutes=3)
    await capacity.sampled(WEST, 1, minutes=3, days_ago=32)
    await tasks.prune(capacity.world.replica.context.db)
    rows = await capacity.run("SELECT min(minute_at) > now() - interval '31 days', count(*) >= 3 FROM capacity_sample")
    assert [tuple(row) for row in rows] == [(True, True)]


async def test_pruning_says_how_much_it_removed(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 1, minutes=5, days_ago=40)
    async with capacity.world.replica.context.db.begin() as session:
        assert await repository.prune_samples(session, timedelta(days=31)) == 5
