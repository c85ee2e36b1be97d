"""`GET /operator/v1/status`: what is known, and null for what is not."""

from pathlib import Path

from sqlalchemy import text

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.operator import StatusView
from tests.integration.control_plane.replica import running_replica
from tests.integration.control_plane.simulated import (
    EAST,
    MODEL,
    WEST,
    SimulatedAgent,
    World,
    declare,
    document,
    running_world,
)


async def test_what_nobody_observed_is_null(database_url: str, tmp_path: Path) -> None:
    async with running_replica(database_url, tmp_path) as replica:
        operator = await replica.operator()
        await declare(replica, operator, document())
        answer = await replica.client.get("/operator/v1/status", headers=operator)
        west = next(p for p in StatusView.model_validate_json(answer.content).datacenters if p.id == WEST)
        assert west.open_requests is None
        assert (west.fleets[0].agent, west.fleets[0].epoch, west.fleets[0].lease_live) == (None, None, False)
        one = west.deployments[0]
        assert (one.phase, one.observed_generation, one.inflight, one.queued) == ("pending", None, None, None)
        assert one.message == "never observed"
        assert [pool.ready_replicas for pool in one.pools] == [None, None]


async def test_what_agents_and_edges_report_is_shown(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path) as world:
        world.agents[WEST].inflight = 4
        await world.agents[WEST].sync()
        for count, edge in enumerate(world.edges, start=1):
            edge.open_requests = {WEST: count}
            await edge.sync()
        status = await world.status()
        west = next(place for place in status.datacenters if place.id == WEST)
        assert west.open_requests == 3
        assert (west.fleets[0].agent, west.fleets[0].epoch, west.fleets[0].lease_live) == (
            world.agents[WEST].peer.identity, 1, True)
        assert west.deployments[0].inflight == 4
        assert sorted(pool.ready_replicas or 0 for pool in west.deployments[0].pools) == [1, 2]
        assert [(edge.live, edge.behind, edge.region) for edge in sorted(status.edges, key=lambda e: e.region)] == [
            (True, 0, EAST), (True, 0, WEST)]


async def test_it_says_which_streams_go_on_when_a_deployment_is_lost(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, edges=0) as world:
        seen = [await continuations(world)]
        for facts in (EngineFacts(identity="a"), EngineFacts(identity="a", grammar_url="http://127.0.0.1:9105")):
            world.agents[EAST].facts, world.agents[WEST].facts = facts, EngineFacts(identity="a")
            for agent in world.agents.values():
                await agent.sync()
            seen.append(await continuations(world))
        world.agents[EAST].facts = EngineFacts(identity="b")
        await world.agents[EAST].sync()
        seen.append(await continuations(world))
    assert seen == [{WEST: "none", EAST: "none"}, {WEST: "plain", EAST: "plain"}, {WEST: "all", EAST: "plain"},
                    {WEST: "none", EAST: "none"}]


async def test_no_stream_goes_on_in_a_place_that_is_drained(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, edges=0) as world:
        for agent in world.agents.values():
            agent.facts = EngineFacts(identity="a")
            await agent.sync()
        async with world.replica.context.db.begin() as session:
            await session.execute(text("UPDATE datacenter SET traffic_state = 'drained' WHERE id = :id"), {"id": EAST})
        assert await continuations(world) == {WEST: "none", EAST: "plain"}


async def continuations(world: World) -> dict[str, str]:
    return {place.id: place.deployments[0].continuation.value for place in (await world.status()).datacenters}


async def test_an_edge_that_is_behind_is_told_by_versions(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, edges=1) as world:
        world.agents[WEST].phase = DeploymentPhase.GONE
        await world.agents[WEST].sync()
        assert [edge.behind for edge in (await world.status()).edges] == [1]


async def test_an_edge_that_is_silent_is_not_live_and_its_requests_are_unknown(
        database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, edges=1) as world:
        async with world.replica.context.db.begin() as session:
            await session.execute(text("UPDATE edge SET last_seen_at = now() - interval '16 s'"))
        status = await world.status()
        assert [edge.live for edge in status.edges] == [False]
        assert {place.open_requests for place in status.datacenters} == {None}


async def test_a_silent_agent_is_shown_and_keeps_its_traffic(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path) as world:
        before = (await world.status()).snapshot_version
        async with world.replica.context.db.begin() as session:
            await session.execute(text("UPDATE agent_lease SET expires_at = now() - interval '1 h'"))
        status = await world.status()
        assert {fleet.lease_live for place in status.datacenters for fleet in place.fleets} == {False}
        assert status.snapshot_version == before


async def test_the_weight_is_the_one_that_edges_use(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path) as world:
        async with world.replica.context.db.begin() as session:
            await session.execute(text("UPDATE datacenter SET traffic_state = 'drained' WHERE id = :id"), {"id": WEST})
        assert {place.id: place.weight for place in (await world.status()).datacenters} == {WEST: 0, EAST: 100}
        declared = await world.replica.client.get("/operator/v1/topology", headers=world.operator)
        assert {place["weight"] for place in declared.json()["datacenters"]} == {100}


async def test_an_operation_under_way_is_shown(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path) as world:
        operation = await world.started("drain", WEST)
        assert [one.id for one in (await world.status()).running_operations] == [operation]


async def test_an_agent_of_an_undeclared_fleet_changes_nothing(database_url: str, tmp_path: Path) -> None:
    async with running_replica(database_url, tmp_path) as replica:
        stray = SimulatedAgent(replica, await replica.enrolled(IdentityKind.AGENT, "nowhere"), "nowhere")
        answer = await stray.post()
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_fleet")


async def test_models_are_told_with_capacity_and_with_how_they_are_served(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path) as world:
        await world.agents[WEST].sync()
        [everywhere, *regions] = [one for one in (await world.status()).models if one.model == MODEL]
        assert (everywhere.region, everywhere.serving, everywhere.holding) == (None, 2, 2)
        assert [one.region for one in regions] == sorted([EAST, WEST])
        assert (everywhere.ready, everywhere.headroom) == (None, None)  # nobody declared what a replica holds
        assert everywhere.quality.uptime_5m is None


async def test_frozen_automation_is_told_until_it_ends(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, edges=0) as world:
        for until, is_frozen in (("NULL", True), ("now() + interval '1 h'", True), ("now() - interval '1 s'", False)):
            async with world.replica.context.db.begin() as session:
                await session.execute(text(
                    f"UPDATE automation SET frozen = true, reason = 'a storm', by = 'me', frozen_until = {until}"))  # noqa: S608
            assert (await world.status()).automation.frozen is is_frozen
