"""A rollout through the real HTTP routes, with simulated agents and edges."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from control_plane.contracts.agent_sync import CommandState, DeploymentPhase
from control_plane.contracts.operations import OperationState, OperationView, StepState
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST, WEST, World, running_world

NEW = {"kind": "sim", "revision": "new"}
PACE: dict[str, Any] = {"ramp_hold_s": 0.1, "watch_s": 0.2}


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path, **PACE) as made:
        yield made


async def ask(world: World, **options: Any) -> httpx.Response:
    names = ("force", "dry_run", "deadline_s")
    order = {"model": MODEL, "engine": NEW} | {k: v for k, v in options.items() if k not in names}
    body = {"kind": "rollout", "reason": "test", "rollout": order} | {k: v for k, v in options.items() if k in names}
    return await world.replica.client.post("/operator/v1/operations", json=body, headers=world.operator)


async def started(world: World, **options: Any) -> str:
    response = await ask(world, **options)
    assert response.status_code == 201, response.text
    return str(response.json()["operation"]["id"])


async def engines(world: World) -> dict[str, dict[str, Any]]:
    """What is declared of each deployment's engine."""
    answer = await world.replica.client.get("/operator/v1/topology", headers=world.operator)
    return {one["fleet"]: one["engine"] for one in answer.json()["deployments"]}


def shares(world: World) -> dict[str, int]:
    assert world.edges[0].snapshot is not None
    return {route.datacenter_id: route.share_permille for route in world.edges[0].snapshot.models[0].routes}


def is_running(name: str, words: str = "") -> Any:
    def reached(view: OperationView) -> bool:
        return any(step.name == name and step.state is StepState.RUNNING and words in step.detail
                   for step in view.steps)
    return reached


def assert_as_before(world: World, found: dict[str, dict[str, Any]]) -> None:
    assert found == {f"{WEST}-a": {}, f"{EAST}-a": {}}
    assert shares(world) == {WEST: 1_000, EAST: 1_000}


async def test_every_cell_has_the_specification_in_the_end(world: World) -> None:
    async with world.running():
        ended = await world.ended(await started(world), timeout_s=60)
    assert ended.state is OperationState.SUCCEEDED, ended
    assert await engines(world) == {f"{WEST}-a": NEW, f"{EAST}-a": NEW}
    assert shares(world) == {WEST: 1_000, EAST: 1_000}


async def test_the_cells_come_in_the_order_that_was_asked_for_and_each_step_names_its_own(world: World) -> None:
    async with world.running():
        ended = await world.ended(await started(world, datacenters=[WEST, EAST]), timeout_s=60)
    cells = [step.detail.partition("-glm")[0] for step in ended.steps if step.name == "replace"]
    assert cells == [f"{WEST}-a", f"{EAST}-a"]


async def test_only_the_named_datacenters_are_changed(world: World) -> None:
    async with world.running():
        await world.ended(await started(world, datacenters=[EAST]), timeout_s=60)
    assert await engines(world) == {f"{WEST}-a": {}, f"{EAST}-a": NEW}


async def test_the_plan_lists_each_cells_steps(world: World) -> None:
    plan = (await ask(world, dry_run=True, datacenters=[EAST])).json()["plan"]
    assert plan["steps"] == ["preflight", *(f"{step} {EAST}-a-glm" for step in (
        "unload", "await_idle", "replace", "await_ready", "probe", "reload", "watch"))]
    assert any("goes on in one with the new only if" in warning for warning in plan["warnings"])


async def test_probes_that_fail_roll_it_back(world: World) -> None:
    for agent in world.agents.values():
        agent._progress = lambda command: CommandState.FAILED  # type: ignore[method-assign]
    async with world.running():
        ended = await world.ended(await started(world), timeout_s=60)
    assert ended.state is OperationState.ROLLED_BACK
    assert "answered no probe: failed" in (ended.error or "")
    assert_as_before(world, await engines(world))


async def test_a_cell_that_is_not_ready_in_time_rolls_it_back(world: World) -> None:
    async with world.running():
        operation = await started(world, datacenters=[WEST], ready_s=1.0)
        await world.until(operation, is_running("await_idle"))
        world.agents[WEST].phase = DeploymentPhase.PROVISIONING
        await world.until(operation, lambda view: view.state is OperationState.ROLLING_BACK)
        world.agents[WEST].phase = DeploymentPhase.READY
        ended = await world.ended(operation, timeout_s=60)
    assert ended.state is OperationState.ROLLED_BACK
    assert "was not ready within 1 s" in (ended.error or "")
    assert_as_before(world, await engines(world))


@pytest.mark.parametrize(("verb", "name"), [
    ("cancel", "unload"), ("rollback", "await_idle"), ("rollback", "reload"), ("cancel", "watch")])
async def test_stopped_anywhere_everything_is_as_before(world: World, verb: str, name: str) -> None:
    async with world.running():
        operation = await started(world, datacenters=[WEST], watch_s=60.0)
        await world.until(operation, is_running(name))
        stopped = await world.replica.client.post(f"/operator/v1/operations/{operation}/{verb}", headers=world.operator)
        assert stopped.status_code == 200, stopped.text
        ended = await world.ended(operation, timeout_s=60)
    assert ended.state is OperationState.ROLLED_BACK, ended
    assert_as_before(world, await engines(world))


async def test_the_last_cell_of_a_model_is_refused_by_name(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, WEST, edges=1, **PACE) as world:
        response = await ask(world)
        assert (response.status_code, response.json()["rule"]) == (409, "last_datacenter")


async def test_the_last_cell_is_replaced_under_its_traffic_when_forced(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, WEST, edges=1, **PACE) as world:
        seen: set[int] = set()

        async def watch() -> None:
            while True:
                seen.update(shares(world).values())
                await asyncio.sleep(0.02)

        async with world.running():
            watching = asyncio.create_task(watch())
            ended = await world.ended(await started(world, force=True), timeout_s=60)
            watching.cancel()
        assert ended.state is OperationState.SUCCEEDED, ended
        assert await engines(world) == {f"{WEST}-a": NEW}
        assert seen == {1_000}


async def test_a_cell_whose_agent_is_silent_is_refused(world: World) -> None:
    async with world.replica.context.db.begin() as session:
        await session.execute(text("UPDATE agent_lease SET expires_at = now() - interval '1 s' "
                                   "WHERE fleet_id = :fleet"), {"fleet": f"{WEST}-a"})
    response = await ask(world)
    assert (response.status_code, response.json()["rule"]) == (409, "agent_heard")


async def test_a_drain_elsewhere_counts_a_cell_without_traffic_as_no_help(world: World) -> None:
    """While the cell in the west is away, the east is the last one."""
    async with world.running():
        operation = await started(world, datacenters=[WEST])
        await world.until(operation, is_running("await_idle"))
        response = await world.ask("drain", EAST)
        assert (response.status_code, response.json()["rule"]) == (409, "last_datacenter")
