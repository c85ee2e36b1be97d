"""The planner's turns on a real database: advice, moves, leases, races, and what stops it."""

import asyncio

from sqlalchemy import text

from control_plane.capacity import planning, repository
from control_plane.capacity.work import CapacityWork
from control_plane.contracts.capacity import PlannerMode
from control_plane.contracts.snapshot import TrafficState
from control_plane.topology import repository as topology
from tests.integration.control_plane.capacity.conftest import Capacity
from tests.integration.control_plane.simulated import EAST, WEST

BEFORE = {(WEST, "decode"): 2, (WEST, "prefill"): 1, (EAST, "decode"): 2, (EAST, "prefill"): 1}
GROWN = BEFORE | {(WEST, "decode"): 3}


async def busy(capacity: Capacity) -> None:
    """West's decode pool at 90 percent, east's in its band."""
    await capacity.sampled(WEST, 18, queued=6)
    await capacity.sampled(EAST, 13, queued=6)


async def generation(capacity: Capacity, place: str) -> int:
    rows = await capacity.run("SELECT generation FROM fleet WHERE id = :id", id=f"{place}-a")
    return int(rows[0][0])


async def test_advice_is_written_down_and_changes_nothing(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("advise")
    before = await generation(capacity, WEST)
    await capacity.turn()
    assert (await capacity.replicas(), await generation(capacity, WEST)) == (BEFORE, before)
    plans = await capacity.run("SELECT moves, applied FROM capacity_plan ORDER BY id DESC LIMIT 1")
    assert [tuple(row) for row in plans] == [(1, False)]


async def test_in_mode_auto_the_pool_grows_and_its_agent_is_told(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("auto")
    await capacity.turn()
    assert await capacity.replicas() == GROWN
    agent = capacity.world.agents[WEST]
    await agent.sync()
    assert agent.desired is not None
    assert {pool.role.value: pool.replicas for pool in agent.desired.deployments[0].pools} == {
        "decode": 3, "prefill": 1}


async def test_a_move_raises_the_generations_of_its_fleet_and_deployment_alone(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("auto")
    before = await generation(capacity, WEST), await generation(capacity, EAST)
    await capacity.turn()
    assert (await generation(capacity, WEST), await generation(capacity, EAST)) == (before[0] + 1, before[1])


async def test_a_move_is_audited_with_its_explanation(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("auto")
    await capacity.turn()
    rows = await capacity.run(
        "SELECT actor, target, reason, before, after FROM audit_event WHERE action = 'capacity.step'")
    assert len(rows) == 1
    actor, target, reason, before, after = rows[0]
    assert (actor, target) == ("meridian:planner", f"deployment:{WEST}-a-glm")
    assert "18 requests on 2 replicas planned for 10 each: 90% used, over 80%" in reason
    assert (before["replicas"], after["replicas"]) == (2, 3)


async def test_a_pool_that_was_moved_is_not_moved_back(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("auto")
    await capacity.turn()
    await capacity.world.agents[WEST].settle()
    await capacity.sampled(WEST, 1, queued=6)
    await capacity.sampled(EAST, 13, queued=6)
    await capacity.turn()
    assert await capacity.replicas() == GROWN
    verdict = next(one for one in (await capacity.plan()).verdicts if one.deployment.startswith(WEST))
    assert (verdict.role.value, verdict.wanted, verdict.rule) == ("decode", 1, "reversal")


async def test_a_quiet_pool_shrinks(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 2, queued=6)
    await capacity.sampled(EAST, 13, queued=6)
    await capacity.mode("auto")
    await capacity.turn()
    assert await capacity.replicas() == BEFORE | {(WEST, "decode"): 1}


async def test_a_signal_that_must_hold_is_remembered_from_turn_to_turn(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("advise")
    await capacity.turn()
    signals = (await capacity.run("SELECT signals FROM capacity_planner"))[0][0]
    await capacity.turn()
    again = (await capacity.run("SELECT signals FROM capacity_planner"))[0][0]
    assert [one["since_s"] for one in again] == [one["since_s"] for one in signals] != []
    assert again[0]["at_s"] > signals[0]["at_s"]


async def test_frozen_automation_moves_nothing_and_says_who_froze_it(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("auto")
    await capacity.run("UPDATE automation SET frozen = true, reason = 'storm', by = 'operator:olga'")
    await capacity.turn()
    assert await capacity.replicas() == BEFORE
    verdict = (await capacity.plan()).verdicts[0]
    assert (verdict.rule, verdict.wanted) == ("frozen", 3)
    assert verdict.why == "automation is frozen by operator:olga: storm"


async def test_a_freeze_that_is_over_holds_nothing(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("auto")
    await capacity.run("UPDATE automation SET frozen = true, frozen_until = now() - interval '1 second', "
                       "reason = 'storm', by = 'operator:olga'")
    await capacity.turn()
    assert await capacity.replicas() == GROWN


async def test_a_fleet_whose_agent_is_silent_is_left_alone(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("auto")
    await capacity.run("UPDATE agent_lease SET expires_at = now() WHERE fleet_id = :id", id=f"{WEST}-a")
    await capacity.turn()
    assert await capacity.replicas() == BEFORE
    assert (await capacity.plan()).verdicts[0].rule == "silent_agent"


async def test_a_datacenter_with_an_operation_under_way_is_left_alone(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.run("UPDATE capacity_sample SET inflight = 8 WHERE deployment_id = :id", id=f"{EAST}-a-glm")
    await capacity.run("UPDATE datacenter SET traffic_state = 'drained' WHERE id = :id", id=EAST)
    restore = await capacity.world.started("restore", EAST)
    await capacity.mode("auto")
    await capacity.turn()
    held = {one.rule for one in (await capacity.plan()).verdicts if one.datacenter == EAST}
    assert held == {"operation"}, restore


async def test_two_replicas_take_turns_and_do_not_plan_twice(capacity: Capacity) -> None:
    db = capacity.world.replica.context.db

    async def lease(token: str) -> bool:
        async with db.begin() as session:
            return await repository.lease(session, token, 30, 60, PlannerMode.ADVISE)

    assert sorted(await asyncio.gather(lease("a"), lease("b"))) == [False, True]
    await capacity.run("UPDATE capacity_planner SET lock_expires_at = now() - interval '1 second'")
    assert await lease("c")
    await capacity.run("UPDATE capacity_planner SET lock_token = NULL, lock_expires_at = NULL, planned_at = now()")
    assert not await lease("d")


async def test_a_replica_that_lost_its_lease_changes_nothing(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("auto")
    context = capacity.world.replica.context
    await capacity.run("UPDATE capacity_planner SET lock_token = 'theirs', lock_expires_at = now() + interval '1 min'")
    async with context.db.begin() as session:
        assert not await planning.turn(session, context.signing_key, context.settings, "mine")
    assert await capacity.replicas() == BEFORE


async def test_a_planner_that_is_off_plans_nothing(capacity: Capacity) -> None:
    await busy(capacity)
    assert await CapacityWork(capacity.world.replica.context).lease("token") == []
    assert await capacity.run("SELECT 1 FROM capacity_plan") == []


async def test_a_plan_is_made_of_what_is_true_once_the_datacenters_are_locked(capacity: Capacity) -> None:
    await busy(capacity)
    await capacity.mode("auto")
    db = capacity.world.replica.context.db
    async with db.begin() as session:
        await topology.lock_datacenters(session)
        await session.execute(text("UPDATE pool SET replicas = 3, ready_replicas = 3 WHERE deployment_id = :id "
                                   "AND role = 'decode'"), {"id": f"{WEST}-a-glm"})
        turn = asyncio.create_task(capacity.turn())
        await asyncio.sleep(0.3)
        assert not turn.done()
    await turn
    assert await capacity.replicas() == GROWN
    assert await capacity.run("SELECT 1 FROM capacity_move") == []


async def test_what_would_be_too_little_after_a_datacenter_was_drained_meanwhile_stays(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 2, queued=6)
    await capacity.sampled(EAST, 13, queued=6)
    await capacity.mode("auto")
    db = capacity.world.replica.context.db
    async with db.begin() as session:
        places = await topology.lock_datacenters(session)
        turn = asyncio.create_task(capacity.turn())
        await asyncio.sleep(0.3)
        places[EAST].traffic_state = TrafficState.DRAINED
    await turn
    assert await capacity.replicas() == BEFORE
    assert (await capacity.plan()).verdicts[0].rule == "headroom"
