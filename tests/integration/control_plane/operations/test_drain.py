"""A drain through the real HTTP routes, with simulated agents and edges that sync as real ones do."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from control_plane.contracts.operations import OperationState, OperationView, StepState
from control_plane.contracts.snapshot import TrafficState
from tests.integration.control_plane.simulated import EAST, WEST, World, eventually, running_world


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path) as made:
        yield made


def step(view: OperationView, name: str) -> str:
    """A step's detail once it runs, empty before."""
    return next(one.detail for one in view.steps if one.name == name)


def is_waiting_in(name: str, words: str = "waits") -> object:
    return lambda view: any(
        one.name == name and one.state is StepState.RUNNING and words in one.detail for one in view.steps)


async def test_a_drain_of_an_idle_datacenter_ends_drained(world: World) -> None:
    async with world.running():
        ended = await world.ended(await world.started("drain", WEST))
        assert ended.state is OperationState.SUCCEEDED, ended
        assert {one.state for one in ended.steps} == {StepState.DONE}
        assert await world.traffic(WEST) is TrafficState.DRAINED
        assert [edge.weight(WEST) for edge in world.edges] == [0, 0]
        assert [edge.weight(EAST) for edge in world.edges] == [100, 100]


async def test_new_requests_stop_by_degrees_before_anything_is_waited_for(world: World) -> None:
    seen: list[int] = []
    async with world.running(*world.edges):
        operation = await world.started("drain", WEST)

        def reached(view: OperationView) -> bool:
            seen.append(world.edges[0].weight(WEST))
            return view.steps[2].state is StepState.DONE

        await world.until(operation, reached)
        assert {100, 50, 20} >= set(seen) - {0}
        assert seen == sorted(seen, reverse=True)
        assert [edge.weight(WEST) for edge in world.edges] == [0, 0]
        assert await world.traffic(WEST) is TrafficState.DRAINING


async def test_it_waits_for_open_requests_of_every_edge(world: World) -> None:
    world.edges[0].open_requests = {WEST: 2, EAST: 5}
    async with world.running():
        operation = await world.started("drain", WEST)
        await world.until(operation, is_waiting_in("await_idle", "2 open requests"))  # type: ignore[arg-type]
        world.edges[0].open_requests = {WEST: 0, EAST: 5}
        assert (await world.ended(operation)).state is OperationState.SUCCEEDED


async def test_it_waits_for_what_is_inside_the_engine(world: World) -> None:
    world.agents[WEST].inflight = 3
    async with world.running():
        operation = await world.started("drain", WEST)
        await world.until(operation, is_waiting_in("await_idle", f"{WEST}-a (3 in flight)"))  # type: ignore[arg-type]
        world.agents[WEST].inflight = 0
        assert (await world.ended(operation)).state is OperationState.SUCCEEDED


async def test_at_the_deadline_it_goes_on_and_says_what_was_left(world: World) -> None:
    world.edges[0].open_requests = {WEST: 2}
    async with world.running():
        ended = await world.ended(await world.started("drain", WEST, deadline_s=3))
        assert ended.state is OperationState.SUCCEEDED
        assert "2 open requests" in step(ended, "await_idle")
        assert "2 open requests could not be moved" in step(ended, "evacuate")
        assert await world.traffic(WEST) is TrafficState.DRAINED


async def test_a_live_edge_that_refuses_the_snapshot_turns_it_back(world: World) -> None:
    world.edges[1].accepts = False
    async with world.running():
        ended = await world.ended(await world.started("drain", WEST))
        assert ended.state is OperationState.ROLLED_BACK
        assert ended.error is not None
        assert f"{world.edges[1].peer.identity} (refused it: poisoned)" in ended.error
        assert await world.traffic(WEST) is TrafficState.ACTIVE
        assert world.edges[0].weight(WEST) == 100


async def test_the_deadline_alone_does_not_fail_it(world: World) -> None:
    async with world.running():
        ended = await world.ended(await world.started("drain", WEST, deadline_s=0.01))
        assert ended.state is OperationState.SUCCEEDED


async def test_a_drain_that_was_turned_back_can_be_asked_for_again(world: World) -> None:
    world.edges[1].accepts = False
    async with world.running():
        await world.ended(await world.started("drain", WEST))
        world.edges[1].accepts = True
        assert (await world.ended(await world.started("drain", WEST))).state is OperationState.SUCCEEDED


async def test_at_the_deadline_streams_that_are_still_open_move(world: World) -> None:
    world.edges[0].open_requests = {WEST: 2}
    async with world.running():
        operation = await world.started("drain", WEST, deadline_s=2)
        await eventually(lambda: world.edges[0].evacuates(WEST))
        world.edges[0].open_requests = {EAST: 2}
        ended = await world.ended(operation)
        assert ended.state is OperationState.SUCCEEDED
        assert "idle for" in step(ended, "verify")


async def test_a_dead_edge_is_excused(world: World) -> None:
    world.edges[1].open_requests = {WEST: 7}
    await world.edges[1].sync()
    async with world.replica.context.db.begin() as session:
        await session.execute(text("UPDATE edge SET last_seen_at = now() - interval '16 s' WHERE id = :id"),
                              {"id": world.edges[1].peer.identity})
    async with world.running(*world.agents.values(), world.edges[0]):
        ended = await world.ended(await world.started("drain", WEST))
        assert ended.state is OperationState.SUCCEEDED
        assert "1 not heard from is excused" in step(ended, "await_edges")


async def test_a_dead_agent_is_excused_and_named(world: World) -> None:
    async with world.replica.context.db.begin() as session:
        await session.execute(text("UPDATE agent_lease SET expires_at = now() WHERE fleet_id = :fleet"),
                              {"fleet": f"{WEST}-a"})
    async with world.running(world.agents[EAST], *world.edges):
        ended = await world.ended(await world.started("drain", WEST))
        assert ended.state is OperationState.SUCCEEDED
        assert f"{WEST}-a not heard" in step(ended, "await_idle")


async def test_the_fleets_orders_end_with_it(world: World) -> None:
    world.agents[WEST].drains = False
    async with world.running():
        await world.ended(await world.started("drain", WEST, deadline_s=3))
        assert (await world.agents[WEST].sync()).commands == []


async def test_each_end_is_audited(world: World) -> None:
    async with world.running():
        await world.ended(await world.started("drain", WEST))
    answer = await world.replica.client.get(f"/operator/v1/audit?target=datacenter:{WEST}", headers=world.operator)
    assert [(event["actor"], event["action"]) for event in answer.json()["data"]] == [
        ("meridian", "drain.succeeded"), ("operator:olga", "drain.create")]


class TestCancel:
    async def cancel(self, world: World, operation: str) -> int:
        path = f"/operator/v1/operations/{operation}/cancel"
        return (await world.replica.client.post(path, headers=world.operator)).status_code

    async def test_it_reopens_traffic_and_takes_the_orders_back(self, world: World) -> None:
        world.agents[WEST].inflight = 1
        async with world.running():
            operation = await world.started("drain", WEST)
            await world.until(operation, is_waiting_in("await_idle", "in flight"))  # type: ignore[arg-type]
            assert await self.cancel(world, operation) == 200
            view = await world.operation(operation)
            assert (view.state, view.error) == (OperationState.CANCELLED, "cancelled by operator:olga")
            assert await world.traffic(WEST) is TrafficState.ACTIVE
            await eventually(lambda: [edge.weight(WEST) for edge in world.edges] == [100, 100])
            await eventually(lambda: not world.agents[WEST].acks)

    async def test_what_ended_cannot_be_cancelled(self, world: World) -> None:
        async with world.running():
            operation = await world.started("drain", WEST)
            await world.ended(operation)
            assert await self.cancel(world, operation) == 409
            assert await world.traffic(WEST) is TrafficState.DRAINED

    async def test_an_unknown_operation_is_not_found(self, world: World) -> None:
        assert await self.cancel(world, "op_nothing") == 404

    async def test_a_datacenter_can_be_drained_again_after_it(self, world: World) -> None:
        async with world.running():
            await self.cancel(world, await world.started("drain", WEST))
            assert (await world.ended(await world.started("drain", WEST))).state is OperationState.SUCCEEDED
