"""A restore through the real HTTP routes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.operations import OperationState, StepState
from control_plane.contracts.snapshot import TrafficState
from control_plane.routing import publisher
from tests.integration.control_plane.simulated import EAST, WEST, World, running_world


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    """A world whose first datacenter is drained; everybody syncs."""
    async with running_world(database_url, tmp_path) as made:
        async with made.replica.context.db.begin() as session:
            await session.execute(text("UPDATE datacenter SET traffic_state = 'drained' WHERE id = :id"), {"id": WEST})
            await publisher.publish(session, made.replica.context.signing_key, "test")
        async with made.running():
            yield made


async def test_it_brings_the_traffic_back(world: World) -> None:
    ended = await world.ended(await world.started("restore", WEST))
    assert ended.state is OperationState.SUCCEEDED, ended
    assert await world.traffic(WEST) is TrafficState.ACTIVE
    assert [edge.weight(WEST) for edge in world.edges] == [100, 100]


async def test_it_takes_less_than_five_seconds_with_agents_that_poll_as_real_ones_do(
        database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, edges=0) as made:
        async with made.replica.context.db.begin() as session:
            await session.execute(text("UPDATE datacenter SET traffic_state = 'drained' WHERE id = :id"), {"id": WEST})
        agent = made.agents[WEST]
        agent.longest_poll_s = 25.0
        async with made.running(agent):
            await asyncio.sleep(0.5)
            ended = await made.ended(await made.started("restore", WEST), timeout_s=5)
    assert ended.state is OperationState.SUCCEEDED


async def test_it_probes_without_traffic_first(world: World) -> None:
    world.agents[WEST].drains = False  # nor does it answer the probe
    operation = await world.started("restore", WEST)
    await world.until(operation, lambda view: view.steps[2].state is StepState.RUNNING)
    assert await world.traffic(WEST) is TrafficState.WARMING
    assert [edge.weight(WEST) for edge in world.edges] == [0, 0]


async def test_it_waits_for_deployments_to_be_ready(world: World) -> None:
    world.agents[WEST].phase = DeploymentPhase.PROVISIONING
    await world.agents[WEST].sync()
    operation = await world.started("restore", WEST)
    await world.until(operation, lambda view: f"{WEST}-a-glm is provisioning" in view.steps[0].detail)
    world.agents[WEST].phase = DeploymentPhase.READY
    assert (await world.ended(operation)).state is OperationState.SUCCEEDED


async def test_it_fails_at_the_deadline_and_leaves_the_traffic_away(world: World) -> None:
    world.agents[WEST].phase = DeploymentPhase.PROVISIONING
    await world.agents[WEST].sync()
    ended = await world.ended(await world.started("restore", WEST, deadline_s=2))
    assert ended.state is OperationState.FAILED
    assert await world.traffic(WEST) is TrafficState.DRAINED


async def test_force_lets_a_degraded_deployment_take_traffic(world: World) -> None:
    world.agents[WEST].phase = DeploymentPhase.DEGRADED
    await world.agents[WEST].sync()
    ended = await world.ended(await world.started("restore", WEST, force=True))
    assert ended.state is OperationState.SUCCEEDED


async def test_each_deployment_answers_a_request_before_it_gets_any(world: World) -> None:
    world.agents[WEST].drains = False
    operation = await world.started("restore", WEST)
    await world.until(operation, lambda view: "has yet to answer a request" in view.steps[2].detail)
    world.agents[WEST].drains = True
    ended = await world.ended(operation)
    assert "1 of 1 deployments answered a request" in ended.steps[2].detail


async def test_an_agent_that_is_not_heard_from_pauses_it_and_its_deadline(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path) as made:
        async with made.replica.context.db.begin() as session:
            await session.execute(text("UPDATE datacenter SET traffic_state = 'drained' WHERE id = :id"), {"id": WEST})
            await session.execute(text("UPDATE agent_lease SET expires_at = now() WHERE fleet_id = :id"),
                                  {"id": f"{WEST}-a"})
        async with made.running(made.agents[EAST], *made.edges):
            operation = await made.started("restore", WEST, deadline_s=4)
            paused = await made.until(operation, lambda view: view.state is OperationState.PAUSED)
            assert paused.paused == f"the agent is not heard from: {WEST}-a"
            await asyncio.sleep(4.5)
            async with made.running(made.agents[WEST]):
                ended = await made.ended(operation)
        assert ended.state is OperationState.SUCCEEDED, ended
        assert (ended.deadline_at - ended.created_at).total_seconds() > 8


async def test_cancelled_while_it_warms_it_goes_back_to_drained(world: World) -> None:
    world.agents[WEST].drains = False
    operation = await world.started("restore", WEST)
    await world.until(operation, lambda view: view.steps[2].state is StepState.RUNNING)
    answer = await world.replica.client.post(f"/operator/v1/operations/{operation}/cancel", headers=world.operator)
    assert answer.json()["state"] == "cancelled"
    assert await world.traffic(WEST) is TrafficState.DRAINED


async def test_after_it_the_other_datacenter_can_be_drained(world: World) -> None:
    await world.ended(await world.started("restore", WEST))
    assert (await world.ended(await world.started("drain", EAST))).state is OperationState.SUCCEEDED


async def test_an_active_datacenter_has_nothing_to_restore(world: World) -> None:
    answer = await world.ask("restore", EAST)
    assert (answer.status_code, answer.json()["code"]) == (409, "illegal_transition")
