"""What operators do with an operation that is under way."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from control_plane.contracts.operations import OperationState, StepState
from control_plane.contracts.snapshot import TrafficState
from tests.integration.control_plane.simulated import EAST, WEST, World, running_world


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path) as made:
        yield made


async def steer(world: World, operation: str, verb: str) -> httpx.Response:
    return await world.replica.client.post(f"/operator/v1/operations/{operation}/{verb}", headers=world.operator)


async def busy_drain(world: World, **options: object) -> str:
    """A drain that waits for a request inside the engine."""
    world.agents[WEST].inflight = 1
    operation = await world.started("drain", WEST, **options)
    await world.until(operation, lambda view: "in flight" in view.steps[3].detail)
    return operation


async def test_paused_it_stands_still_and_so_does_its_deadline(world: World) -> None:
    async with world.running():
        operation = await busy_drain(world)
        before = await world.operation(operation)
        answer = await steer(world, operation, "pause")
        assert (answer.status_code, answer.json()["paused"]) == (200, "paused by operator:olga")
        world.agents[WEST].inflight = 0
        with pytest.raises(AssertionError, match="not reached"):
            await world.ended(operation, timeout_s=1.5)
        assert (await steer(world, operation, "resume")).status_code == 200
        ended = await world.ended(operation)
        assert ended.state is OperationState.SUCCEEDED
        assert (ended.deadline_at - before.deadline_at).total_seconds() > 1


async def test_what_is_not_paused_cannot_be_resumed(world: World) -> None:
    async with world.running():
        answer = await steer(world, await busy_drain(world), "resume")
    assert (answer.status_code, answer.json()["code"]) == (409, "illegal_transition")


async def test_paused_it_can_be_cancelled(world: World) -> None:
    async with world.running():
        operation = await busy_drain(world)
        await steer(world, operation, "pause")
        assert (await steer(world, operation, "cancel")).json()["state"] == "cancelled"
        assert await world.traffic(WEST) is TrafficState.ACTIVE


@pytest.mark.parametrize("paused", [False, True])
async def test_rolled_back_its_traffic_returns_and_every_edge_knows(world: World, paused: bool) -> None:
    async with world.running():
        operation = await busy_drain(world)
        if paused:
            await steer(world, operation, "pause")
        assert (await steer(world, operation, "rollback")).json()["state"] == "rolling_back"
        ended = await world.ended(operation)
        assert ended.state is OperationState.ROLLED_BACK
        assert [one.state for one in ended.steps[4:]] == [StepState.SKIPPED] * 3 + [StepState.DONE]
        assert await world.traffic(WEST) is TrafficState.ACTIVE
        assert [edge.weight(WEST) for edge in world.edges] == [100, 100]


async def test_rolled_back_twice_is_rolled_back_once(world: World) -> None:
    async with world.running():
        operation = await busy_drain(world)
        answers = [await steer(world, operation, "rollback") for _ in range(2)]
        assert answers[1].status_code == 200 or "ended already" in answers[1].text
        ended = await world.ended(operation)
        assert [one.name for one in ended.steps].count("undo") == 1


async def test_what_has_ended_says_what_undoes_it(world: World) -> None:
    async with world.running():
        operation = await world.started("drain", WEST)
        await world.ended(operation)
        answer = await steer(world, operation, "rollback")
    assert answer.status_code == 409
    assert answer.json()["message"].endswith(f"Undo it with: meridian restore {WEST} --reason …")


@pytest.mark.parametrize("verb", ["pause", "resume", "rollback", "cancel"])
async def test_an_unknown_operation_is_not_found(world: World, verb: str) -> None:
    assert (await steer(world, "op_nothing", verb)).status_code == 404


async def test_steering_is_audited(world: World) -> None:
    async with world.running():
        operation = await busy_drain(world)
        for verb in ("pause", "resume", "rollback"):
            await steer(world, operation, verb)
        await world.ended(operation)
    answer = await world.replica.client.get(f"/operator/v1/audit?target=datacenter:{WEST}", headers=world.operator)
    assert [(event["actor"], event["action"]) for event in answer.json()["data"]] == [
        ("meridian", "drain.rolled_back"), ("operator:olga", "drain.turn_back"), ("operator:olga", "drain.resume"),
        ("operator:olga", "drain.pause"), ("operator:olga", "drain.create")]


async def test_a_drain_and_its_roll_back_leave_the_other_free_to_be_drained(world: World) -> None:
    async with world.running():
        operation = await busy_drain(world)
        await steer(world, operation, "rollback")
        await world.ended(operation)
        assert (await world.ended(await world.started("drain", EAST))).state is OperationState.SUCCEEDED
