"""`POST /agent/v1/sync` on a real database."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from control_plane.agents.service import BUSY_WAIT_S, MAX_WAIT_S
from control_plane.contracts.agent_sync import AgentSyncRequest, DeploymentPhase, ObservedDeployment, ObservedPool
from control_plane.contracts.deployment import EngineFacts, ReasoningFacts
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.snapshot import SnapshotModel
from control_plane.contracts.topology import TopologyDocument
from tests.integration.control_plane.replica import Replica, running_replica
from tests.integration.control_plane.simulated import (
    EAST,
    WEST,
    SimulatedAgent,
    SimulatedEdge,
    World,
    declare,
    document,
    running_world,
)


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path, edges=1) as running:
        yield running


@pytest.fixture
async def replica(database_url: str, tmp_path: Path) -> AsyncIterator[Replica]:
    async with running_replica(database_url, tmp_path) as running:
        await declare(running, await running.operator(), document())
        yield running


async def new_agent(replica: Replica, fleet: str = f"{WEST}-a") -> SimulatedAgent:
    return SimulatedAgent(replica, await replica.enrolled(IdentityKind.AGENT, fleet), fleet)


async def lapse(replica: Replica) -> None:
    async with replica.context.db.begin() as session:
        await session.execute(text("UPDATE agent_lease SET expires_at = now() - interval '1 s'"))


async def model(world: World) -> SnapshotModel:
    """The model as the edge's newest snapshot has it."""
    await world.edges[0].sync()
    assert world.edges[0].snapshot is not None
    return world.edges[0].snapshot.models[0]


class TestLease:
    async def test_the_first_sync_grants_epoch_one_and_tells_what_to_run(self, replica: Replica) -> None:
        answer = await (await new_agent(replica)).sync()
        assert (answer.epoch, answer.lease_ttl_s, answer.generation) == (1, 15.0, 1)
        assert answer.desired is not None
        assert [one.deployment_id for one in answer.desired.deployments] == [f"{WEST}-a-glm"]

    async def test_the_second_sync_renews_and_repeats_nothing(self, replica: Replica) -> None:
        agent = await new_agent(replica)
        await agent.sync()
        answer = await agent.sync()
        assert (answer.epoch, answer.desired) == (1, None)

    async def test_a_restarted_agent_supersedes_itself_at_once(self, replica: Replica) -> None:
        agent = await new_agent(replica)
        await agent.sync()
        reborn = SimulatedAgent(replica, agent.peer, agent.fleet, boot_id="boot-2")
        assert (await reborn.sync()).epoch == 2
        response = await agent.post()
        assert (response.status_code, response.json()["code"]) == (410, "superseded")

    async def test_a_superseded_boot_cannot_take_the_lease_back(self, replica: Replica) -> None:
        agent = await new_agent(replica)
        await agent.sync()
        await SimulatedAgent(replica, agent.peer, agent.fleet, boot_id="boot-2").sync()
        agent.epoch = None
        assert (await agent.post()).status_code == 410

    async def test_another_agent_of_the_fleet_waits_until_the_lease_lapsed(self, replica: Replica) -> None:
        first, second = await new_agent(replica), await new_agent(replica)
        await first.sync()
        assert (await second.post()).status_code == 410
        await lapse(replica)
        assert (await second.sync()).epoch == 2

    async def test_who_lost_the_lease_meanwhile_is_superseded_and_stores_nothing(self, replica: Replica) -> None:
        first, second = await new_agent(replica), await new_agent(replica)
        await first.settle()
        await lapse(replica)
        await second.settle()
        first.phase = DeploymentPhase.GONE
        assert (await first.post()).status_code == 410
        async with replica.context.db.begin() as session:
            phases = (await session.execute(text("SELECT phase FROM deployment WHERE fleet_id = :fleet"),
                                            {"fleet": first.fleet})).scalars().all()
        assert phases == ["ready"]

    @pytest.mark.parametrize("epoch", [0, 2, 2**62])
    async def test_another_epoch_is_stale_and_stores_nothing(self, replica: Replica, epoch: int) -> None:
        agent = await new_agent(replica)
        await agent.settle()
        agent.epoch, agent.phase = epoch, DeploymentPhase.GONE
        response = await agent.post()
        assert (response.status_code, response.json()["code"]) == (409, "stale_epoch")
        agent.epoch = None
        assert (await agent.sync()).epoch == 1

    async def test_of_many_boots_at_once_each_gets_an_epoch_of_its_own(self, replica: Replica) -> None:
        peer = (await new_agent(replica)).peer
        boots = [SimulatedAgent(replica, peer, f"{WEST}-a", boot_id=f"boot-{number}") for number in range(12)]
        answers = await asyncio.gather(*[boot.post() for boot in boots])
        epochs = [answer.json()["epoch"] for answer in answers if answer.status_code == 200]
        assert {answer.status_code for answer in answers} <= {200, 410}
        assert sorted(epochs) == sorted(set(epochs))
        assert epochs

    async def test_a_lapsed_lease_moves_no_traffic(self, world: World) -> None:
        assert world.edges[0].snapshot is not None
        before = world.edges[0].snapshot
        await lapse(world.replica)
        await asyncio.sleep(1.5)
        await world.edges[0].sync()
        assert world.edges[0].snapshot == before


class TestObserved:
    async def test_a_deployment_that_became_ready_is_routed(self, replica: Replica) -> None:
        edge = SimulatedEdge(replica, await replica.enrolled(IdentityKind.EDGE))
        await edge.sync()
        assert edge.snapshot is not None
        assert edge.snapshot.models[0].unroutable_reason == (
            f"{EAST}-a-glm: never observed; {WEST}-a-glm: never observed")
        await (await new_agent(replica)).settle()
        await edge.sync()
        assert [route.deployment_id for route in edge.snapshot.models[0].routes] == [f"{WEST}-a-glm"]

    @pytest.mark.parametrize(("phase", "is_routed"), [
        (DeploymentPhase.DEGRADED, True), (DeploymentPhase.PROVISIONING, False), (DeploymentPhase.RETIRING, False),
        (DeploymentPhase.GONE, False)])
    async def test_what_a_ready_deployment_becomes_decides_its_route(
            self, world: World, phase: DeploymentPhase, is_routed: bool) -> None:
        world.agents[WEST].phase = phase
        await world.agents[WEST].sync()
        assert (f"{WEST}-a-glm" in {route.deployment_id for route in (await model(world)).routes}) is is_routed

    async def test_the_engines_facts_reach_its_route_and_follow_it(self, world: World) -> None:
        for facts in (EngineFacts(identity="e1", grammar_url="http://127.0.0.1:9005", tool_parser="glm47",
                                  reasoning=ReasoningFacts(start_ids=[1], end_ids=[2], starts_inside=True)),
                      EngineFacts(identity="e2", prefill_tokens_per_s=8000.5)):
            world.agents[WEST].facts = facts
            await world.agents[WEST].sync()
            routes = {route.deployment_id: route.engine for route in (await model(world)).routes}
            assert routes == {f"{WEST}-a-glm": facts, f"{EAST}-a-glm": EngineFacts()}

    async def test_the_same_facts_again_make_no_new_snapshot(self, world: World) -> None:
        world.agents[WEST].facts = EngineFacts(identity="e1", prefill_tokens_per_s=0.1)
        await world.agents[WEST].sync()
        before = await model(world)
        version = world.edges[0].snapshot and world.edges[0].snapshot.version
        await world.agents[WEST].sync()
        assert (await model(world), world.edges[0].snapshot and world.edges[0].snapshot.version) == (before, version)

    async def test_a_deployment_that_comes_back_is_routed_again(self, world: World) -> None:
        agent = world.agents[WEST]
        for phase in (DeploymentPhase.GONE, DeploymentPhase.PENDING, DeploymentPhase.READY):
            agent.phase = phase
            await agent.sync()
        assert len((await model(world)).routes) == 2

    async def test_a_deployment_scaled_to_zero_is_not_routed(self, world: World) -> None:
        whole = document().model_dump(mode="json")
        for pool in whole["deployments"][0]["pools"]:
            pool["replicas"] = 0
        await declare(world.replica, world.operator, TopologyDocument.model_validate(whole))
        assert [route.deployment_id for route in (await model(world)).routes] == [f"{EAST}-a-glm"]

    async def test_a_report_about_another_fleets_deployment_is_passed_over(self, world: World) -> None:
        agent = world.agents[WEST]
        request = AgentSyncRequest(
            boot_id=agent.boot_id, release="0.1.0", epoch=agent.epoch, seen_generation=1, acks=[], wait_s=0,
            deployments=[ObservedDeployment(deployment_id=f"{EAST}-a-glm", observed_generation=1,
                                            phase=DeploymentPhase.GONE, pools=[])])
        await world.replica.signed(agent.peer, "/agent/v1/sync", request.model_dump_json().encode())
        assert len((await model(world)).routes) == 2

    async def test_a_role_that_nobody_declared_is_passed_over(self, world: World) -> None:
        agent = world.agents[WEST]
        request = AgentSyncRequest(
            boot_id=agent.boot_id, release="0.1.0", epoch=agent.epoch, seen_generation=1, acks=[], wait_s=0,
            deployments=[ObservedDeployment(
                deployment_id=f"{WEST}-a-glm", observed_generation=1, phase=DeploymentPhase.READY,
                pools=[ObservedPool(role="router", desired_replicas=1, ready_replicas=1)])])
        answer = await world.replica.signed(agent.peer, "/agent/v1/sync", request.model_dump_json().encode())
        assert answer.status_code == 200

    async def test_figures_that_could_not_be_read_stay_null(self, world: World) -> None:
        world.agents[WEST].inflight = None
        await world.agents[WEST].sync()
        west = next(place for place in (await world.status()).datacenters if place.id == WEST)
        assert west.deployments[0].inflight is None


class TestLongPoll:
    async def test_it_is_answered_as_soon_as_the_desired_state_changes(self, world: World) -> None:
        poll = asyncio.create_task(world.agents[WEST].sync(wait_s=9.0))
        await asyncio.sleep(0.3)
        whole = document().model_dump(mode="json")
        whole["deployments"][0]["engine"] = {"kv": "fp8"}
        await declare(world.replica, world.operator, TopologyDocument.model_validate(whole))
        async with asyncio.timeout(2):
            answer = await poll
        assert (answer.generation, answer.desired is not None) == (2, True)

    async def test_it_is_answered_with_nothing_when_the_wait_is_over(self, world: World) -> None:
        answer = await world.agents[WEST].sync(wait_s=0.3)
        assert (answer.desired, answer.commands, answer.next_wait_s) == (None, [], MAX_WAIT_S)

    async def test_it_ends_when_another_boot_takes_over(self, world: World) -> None:
        agent = world.agents[WEST]
        poll = asyncio.create_task(agent.post(wait_s=9.0))
        await asyncio.sleep(0.3)
        await SimulatedAgent(world.replica, agent.peer, agent.fleet, boot_id="boot-2").sync()
        async with asyncio.timeout(2):
            assert (await poll).status_code == 410

    async def test_it_brings_an_order_at_once_and_once(self, world: World) -> None:
        agent = world.agents[WEST]
        agent.inflight = 1
        await agent.sync()
        poll = asyncio.create_task(agent.sync(wait_s=9.0))
        async with world.running(*world.edges):
            await world.started("drain", WEST)
            async with asyncio.timeout(5):
                while not (first := await poll).commands:
                    poll = asyncio.create_task(agent.sync(wait_s=9.0))
            assert [(command.kind, command.seq, command.epoch) for command in first.commands] == [("drain", 1, 1)]
            assert first.next_wait_s == BUSY_WAIT_S
            began = asyncio.get_running_loop().time()
            second = await agent.sync(wait_s=0.5)
        assert second.commands[0].id == first.commands[0].id
        assert asyncio.get_running_loop().time() - began > 0.45

    async def test_a_new_boot_is_handed_open_orders_under_its_own_epoch(self, world: World) -> None:
        agent = world.agents[WEST]
        agent.inflight = 1
        async with world.running(agent, *world.edges):
            operation = await world.started("drain", WEST)
            await world.until(operation, lambda view: any(
                step.name == "await_idle" and step.state == "running" for step in view.steps))
        reborn = SimulatedAgent(world.replica, agent.peer, agent.fleet, boot_id="boot-2")
        answer = await reborn.sync()
        assert [command.epoch for command in answer.commands] == [2]

    @pytest.mark.parametrize("kind", ["drain", "restore"])
    async def test_it_is_cut_short_as_soon_as_an_operation_looks_at_the_fleet(self, world: World, kind: str) -> None:
        if kind == "restore":
            async with world.replica.context.db.begin() as session:
                await session.execute(
                    text("UPDATE datacenter SET traffic_state = 'drained' WHERE id = :id"), {"id": WEST})
        polls = [asyncio.create_task(world.agents[place].sync(wait_s=9.0)) for place in (WEST, EAST)]
        await asyncio.sleep(1.2)
        await world.started(kind, WEST)
        async with asyncio.timeout(1):
            assert (await polls[0]).next_wait_s == BUSY_WAIT_S
        await asyncio.sleep(0.2)
        assert not polls[1].done()
        polls[1].cancel()
        await asyncio.gather(polls[1], return_exceptions=True)

    async def test_many_polls_wait_without_a_connection(self, database_url: str, tmp_path: Path) -> None:
        async with running_world(database_url, tmp_path, edges=1, pool_size=1) as world:
            polls = [asyncio.create_task(world.agents[WEST].post(wait_s=10.0)) for _ in range(10)]
            polls += [asyncio.create_task(world.edges[0].post(wait_s=10.0)) for _ in range(10)]
            await asyncio.sleep(1.0)
            async with asyncio.timeout(4):
                await world.status()
            assert sum(not poll.done() for poll in polls) == 20
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)

    async def test_reports_are_asked_for_soon_while_a_deployment_is_not_ready(self, world: World) -> None:
        world.agents[WEST].phase = DeploymentPhase.PROVISIONING
        assert (await world.agents[WEST].sync()).next_wait_s == BUSY_WAIT_S
