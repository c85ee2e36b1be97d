"""A failover through the real HTTP routes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from control_plane.contracts.operations import OperationKind, OperationRequest, OperationState, OperationView
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations import service
from tests.integration.control_plane.simulated import EAST, MODEL, WEST, World, eventually, running_world


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path) as made:
        yield made


async def silence(world: World, datacenter: str) -> None:
    """The agent of a datacenter is not heard from any more."""
    async with world.replica.context.db.begin() as session:
        await session.execute(text("UPDATE agent_lease SET expires_at = now() WHERE fleet_id = :fleet"),
                              {"fleet": f"{datacenter}-a"})


async def by_itself(world: World, datacenter: str) -> service.Outcome:
    """What becomes of an automatic one."""
    asked = OperationRequest(kind=OperationKind.FAILOVER, datacenter=datacenter, reason="lost to 2 of 2 edges")
    async with world.replica.context.db.begin() as session:
        return await service.create(session, asked, "meridian:evidence", None, automatic=True)


async def test_a_dead_datacenter_is_left_without_asking_it(world: World) -> None:
    await silence(world, WEST)
    async with world.running(world.agents[EAST], *world.edges):
        ended = await world.ended(await world.started("failover", WEST, mode="hard"))
        assert ended.state is OperationState.SUCCEEDED, ended
        assert await world.traffic(WEST) is TrafficState.FAILED
        assert [edge.weight(WEST) for edge in world.edges] == [0, 0]


async def test_hard_mode_moves_open_streams_with_the_first_snapshot(world: World) -> None:
    world.edges[0].open_requests = {WEST: 3}
    async with world.running():
        operation = await world.started("failover", WEST, mode="hard")
        await eventually(lambda: world.edges[0].weight(WEST) == 0)
        assert world.edges[0].evacuates(WEST)
        world.edges[0].open_requests = {EAST: 3}
        assert (await world.ended(operation)).state is OperationState.SUCCEEDED


async def test_graceful_mode_lets_them_finish_until_the_deadline(world: World) -> None:
    world.edges[0].open_requests = {WEST: 3}
    async with world.running():
        operation = await world.started("failover", WEST, deadline_s=3)
        await eventually(lambda: world.edges[0].weight(WEST) == 0)
        assert not world.edges[0].evacuates(WEST)
        await eventually(lambda: world.edges[0].evacuates(WEST))
        world.edges[0].open_requests = {}
        assert (await world.ended(operation)).state is OperationState.SUCCEEDED


async def test_a_hard_one_makes_a_graceful_one_hard_that_is_under_way(world: World) -> None:
    world.edges[0].open_requests = {WEST: 3}
    async with world.running():
        operation = await world.started("failover", WEST, deadline_s=600)
        await world.until(operation, lambda view: view.steps[3].detail.startswith("waits"))
        again = await world.ask("failover", WEST, mode="hard", reason="it burns")
        assert (again.status_code, again.json()["operation"]["id"]) == (200, operation)
        await eventually(lambda: world.edges[0].evacuates(WEST))
        world.edges[0].open_requests = {}
        assert (await world.ended(operation)).state is OperationState.SUCCEEDED
    answer = await world.replica.client.get(f"/operator/v1/audit?target=datacenter:{WEST}", headers=world.operator)
    reasons = [event["reason"] for event in answer.json()["data"] if event["action"] == "failover.escalate"]
    assert reasons == ["it burns"]


async def test_a_graceful_one_leaves_a_hard_one_hard(world: World) -> None:
    operation = await world.started("failover", WEST, mode="hard")
    assert (await world.ask("failover", WEST, mode="graceful")).json()["operation"]["id"] == operation
    answer = await world.replica.client.get(f"/operator/v1/audit?target=datacenter:{WEST}", headers=world.operator)
    assert [event["action"] for event in answer.json()["data"]] == ["failover.create"]


async def test_by_two_operators_at_once_it_is_one(world: World) -> None:
    answers = await asyncio.gather(*[world.ask("failover", WEST, mode=mode) for mode in ("hard", "graceful") * 5])
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
    assert len({answer.json()["operation"]["id"] for answer in answers}) == 1


async def test_asked_for_again_after_its_end_it_is_the_one_that_did_it(world: World) -> None:
    async with world.running():
        operation = await world.started("failover", WEST)
        await world.ended(operation)
        again = await world.ask("failover", WEST)
    assert (again.status_code, again.json()["operation"]["id"]) == (200, operation)
    assert again.json()["plan"]["warnings"][0].startswith(f"{WEST} is failed already")


async def test_the_last_routable_datacenter_is_not_left(world: World) -> None:
    async with world.running():
        await world.ended(await world.started("failover", WEST))
        answer = await world.ask("failover", EAST)
        assert (answer.status_code, answer.json()["rule"]) == (409, "last_datacenter")
        assert (await world.ask("failover", EAST, force=True)).status_code == 201


async def test_silent_agents_elsewhere_do_not_keep_an_operator_from_it(world: World) -> None:
    await silence(world, EAST)
    assert (await world.ask("failover", WEST)).status_code == 201


async def test_onto_a_datacenter_that_takes_nothing_it_is_refused(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, WEST, EAST, "ap-south-1") as made, made.running():
        await made.ended(await made.started("drain", EAST))
        answer = await made.ask("failover", WEST, onto=[EAST])
        assert (answer.status_code, answer.json()["rule"]) == (409, "last_datacenter")
        plan = (await made.ask("failover", WEST, onto=["ap-south-1"], dry_run=True)).json()["plan"]
        assert plan["refusal"] is None


async def test_a_restore_brings_it_back(world: World) -> None:
    async with world.running():
        await world.ended(await world.started("failover", WEST))
        ended = await world.ended(await world.started("restore", WEST))
        assert ended.state is OperationState.SUCCEEDED, ended
        assert await world.traffic(WEST) is TrafficState.ACTIVE
        assert not world.edges[0].evacuates(WEST)


async def test_rolled_back_half_way_its_traffic_is_back_at_once(world: World) -> None:
    world.edges[0].open_requests = {WEST: 1}
    async with world.running():
        operation = await world.started("failover", WEST)
        await world.until(operation, lambda view: "waits for 1 open" in view.steps[3].detail)
        answer = await world.replica.client.post(f"/operator/v1/operations/{operation}/rollback",
                                                 headers=world.operator)
        assert answer.status_code == 200, answer.text
        assert (await world.ended(operation)).state is OperationState.ROLLED_BACK
        assert await world.traffic(WEST) is TrafficState.ACTIVE


async def test_cancelled_it_stays_failed_and_moves_nothing_more(world: World) -> None:
    world.edges[0].open_requests = {WEST: 1}
    async with world.running():
        operation = await world.started("failover", WEST, mode="hard")
        await eventually(lambda: world.edges[0].evacuates(WEST))
        await world.replica.client.post(f"/operator/v1/operations/{operation}/cancel", headers=world.operator)
        await eventually(lambda: not world.edges[0].evacuates(WEST))
        assert await world.traffic(WEST) is TrafficState.FAILED


class TestAutomatic:
    async def test_it_is_hard_and_says_that_nobody_ordered_it(self, world: World) -> None:
        begun = (await by_itself(world, WEST)).operation
        assert begun is not None
        assert (begun.automatic, begun.requested_by) == (True, "meridian:evidence")
        async with world.running():
            ended = await world.ended(begun.id)
        assert ended.steps[3].detail == "hard: open requests are not waited for"

    async def test_frozen_it_is_refused(self, world: World) -> None:
        await freeze(world)
        refusal = (await by_itself(world, WEST)).refusal
        assert refusal is not None
        assert refusal.rule == "frozen"

    async def test_frozen_after_it_began_it_is_paused_until_that_is_over(self, world: World) -> None:
        begun = (await by_itself(world, WEST)).operation
        assert begun is not None
        await freeze(world)
        async with world.running():
            paused = await world.until(begun.id, lambda view: view.state is OperationState.PAUSED)
            assert (paused.paused or "").endswith("by operator:olga: audit")
            await world.replica.client.post("/operator/v1/automation/unfreeze", json={"reason": "over"},
                                            headers=world.operator)
            assert (await world.ended(begun.id)).state is OperationState.SUCCEEDED

    async def test_by_the_word_of_silent_fleets_it_is_refused(self, world: World) -> None:
        await silence(world, EAST)
        assert (await by_itself(world, WEST)).refusal is not None

    async def test_a_third_of_all_may_be_away_for_it_and_more_for_an_operator(
            self, database_url: str, tmp_path: Path) -> None:
        async with running_world(database_url, tmp_path, WEST, EAST, "ap-south-1") as made, made.running():
            await made.ended(await made.started("failover", WEST))
            refusal = (await by_itself(made, EAST)).refusal
            assert refusal is not None
            assert refusal.rule == "away_at_once"
            assert (await made.ask("failover", EAST)).status_code == 201


async def freeze(world: World) -> None:
    answer = await world.replica.client.post("/operator/v1/automation/freeze", json={"reason": "audit", "ttl_s": 60},
                                             headers=world.operator)
    assert answer.status_code == 200, answer.text


async def test_an_agent_of_an_older_epoch_does_nothing_for_it(world: World) -> None:
    """The order of a drain goes to whoever holds the lease now; the one before is told to stop, and cannot answer."""
    old, new = world.agents[WEST], world.agents[WEST].again()
    old.inflight = new.inflight = 1
    async with world.running(world.agents[EAST], *world.edges):
        operation = await world.started("drain", WEST)
        await world.until(operation, lambda view: view.steps[3].detail.startswith("waits"))
        await old.sync()
        assert old.acks
        await silence(world, WEST)
        handed = (await new.sync()).commands
        assert [order.epoch for order in handed] == [(old.epoch or 0) + 1]
        answer = await old.post()
        assert answer.status_code in (409, 410), answer.text
        view: OperationView = await world.operation(operation)
        assert view.state is OperationState.RUNNING


@pytest.mark.parametrize("kind", ["drain", "restore"])
async def test_a_drain_or_restore_gives_way_to_a_failover(world: World, kind: str) -> None:
    """Nobody waits for the end of a drain to say that a datacenter is dead."""
    async with world.running():
        if kind == "restore":
            await world.ended(await world.started("failover", WEST, mode="hard", force=True))
        world.edges[0].open_requests = {WEST: 3}
        earlier = await world.started(kind, WEST)
        failover = await world.started("failover", WEST, mode="hard", force=True)
        given_way = await world.ended(earlier)
        assert (given_way.state, given_way.error) == (
            OperationState.CANCELLED, "superseded by a failover that operator:olga ordered")
        world.edges[0].open_requests = {}
        assert (await world.ended(failover)).state is OperationState.SUCCEEDED
        assert await world.traffic(WEST) is TrafficState.FAILED


async def test_a_failover_that_is_only_planned_ends_nothing(world: World) -> None:
    world.edges[0].open_requests = {WEST: 3}
    async with world.running():
        drain = await world.started("drain", WEST, force=True)
        assert (await world.ask("failover", WEST, dry_run=True)).status_code == 200
        assert (await world.operation(drain)).state is not OperationState.CANCELLED


async def test_a_rollout_keeps_no_failover_waiting(world: World) -> None:
    order = {"model": MODEL, "engine": {"speed": 2}, "datacenters": [WEST]}
    async with world.running():
        body = {"kind": "rollout", "rollout": order, "reason": "test", "force": True}
        answer = await world.replica.client.post("/operator/v1/operations", json=body, headers=world.operator)
        assert answer.status_code == 201, answer.text
        failover = await world.started("failover", WEST, mode="hard", force=True)
        assert (await world.ended(failover)).state is OperationState.SUCCEEDED
