"""The figures that replicas read from the database, as Prometheus gets them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.clock import ManualClock
from control_plane.contracts.edge_sync import EdgeSyncRequest, Nack
from control_plane.contracts.evidence import QualityMinute, Vote, VoteVerdict
from control_plane.watch import board as boards
from control_plane.watch.board import Board
from control_plane.watch.figures import FIGURES
from tests.integration.control_plane.gate import gated
from tests.integration.control_plane.replica import MODEL, Replica, running_replica
from tests.integration.control_plane.simulated import EAST, WEST, World, running_world

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scrape:
    """One answer of `/metrics`, by name and labels."""

    def __init__(self, text: str) -> None:
        self.values = {(sample.name, frozenset(sample.labels.items())): sample.value
                       for family in text_string_to_metric_families(text) for sample in family.samples}

    def get(self, name: str, **labels: str) -> float | None:
        return self.values.get((f"meridian_{name}", frozenset(labels.items())))

    def names(self) -> set[str]:
        return {name for name, _ in self.values}


async def scrape(replica: Replica) -> Scrape:
    """What a fresh board says, whatever the replica's own has kept."""
    return Scrape((await Board(replica.context.db, replica.context.clock).text()).decode())


async def exposed(replica: Replica) -> str:
    """What the replica answers Prometheus."""
    return (await replica.client.get("/metrics")).text


async def vote(world: World, datacenter: str) -> None:
    """The first edge says that a datacenter is lost."""
    edge = world.edges[0]
    assert edge.snapshot is not None
    request = EdgeSyncRequest(
        boot_id=edge.boot_id, release="0.1.0", acked_lineage=edge.snapshot.lineage, acked_version=edge.snapshot.version,
        revocations_after=0, open_requests={}, wait_s=0,
        votes=[Vote(datacenter_id=datacenter, verdict=VoteVerdict.LOST, held_s=3.0, evidence="refused")])
    answer = await world.replica.signed(edge.peer, "/edge/v1/sync", request.model_dump_json().encode())
    assert answer.status_code == 200, answer.text


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path) as made:
        yield made


async def test_datacenters_and_models_are_told_as_edges_route(world: World) -> None:
    seen = await scrape(world.replica)
    place = {"datacenter": WEST, "region": WEST}
    assert seen.get("datacenter_weight", **place) == 100
    assert seen.get("datacenter_state", **place, state="active") == 1
    assert seen.get("datacenter_state", **place, state="drained") is None
    assert (seen.get("model_routable_datacenters", model=MODEL), seen.get("model_wanted_datacenters", model=MODEL)) == (
        2, 1)


async def test_deployments_are_told_as_their_agents_see_them(world: World) -> None:
    world.agents[WEST].inflight, world.agents[EAST].inflight = 7, None
    world.agents[WEST].phase = DeploymentPhase.DEGRADED
    await world.agents[WEST].sync()
    await world.agents[EAST].sync()
    seen = await scrape(world.replica)
    west = {"deployment": f"{WEST}-a-glm", "model": MODEL, "datacenter": WEST}
    assert seen.get("deployment_inflight_requests", **west) == 7
    assert seen.get("deployment_phase", **west, phase="degraded") == 1
    assert seen.get("deployment_behind_generations", **west) == 0
    assert seen.get("pool_ready_replicas", **west, role="decode") == 2
    east = {"deployment": f"{EAST}-a-glm", "model": MODEL, "datacenter": EAST}
    assert seen.get("deployment_inflight_requests", **east) is None  # not observed is not 0
    assert seen.get("model_routable_datacenters", model=MODEL) == 2  # degraded serves


async def test_a_model_that_nobody_serves_is_told_as_0(world: World) -> None:
    for agent in world.agents.values():
        agent.phase = DeploymentPhase.PROVISIONING
        await agent.sync()
    assert (await scrape(world.replica)).get("model_routable_datacenters", model=MODEL) == 0


async def test_leases_are_told_with_age_and_epoch_and_without_them_before_an_agent_came(
        world: World) -> None:
    seen = await scrape(world.replica)
    fleet = {"fleet": f"{WEST}-a", "datacenter": WEST}
    assert (seen.get("fleet_lease_live", **fleet), seen.get("fleet_lease_epoch", **fleet)) == (1, 1)
    assert 0 <= (seen.get("fleet_lease_age_seconds", **fleet) or 0) < 30


async def test_edges_are_told_live_up_to_date_and_refusing(world: World) -> None:
    good, bad = world.edges
    bad.accepts = False
    await world.agents[WEST].sync()
    await world.started("drain", WEST, force=True)
    async with asyncio.timeout(10):
        while (await scrape(world.replica)).get("routing_edge_refusing", edge=bad.peer.identity, region=EAST) != 1:
            await good.sync()
            await bad.sync()
    seen = await scrape(world.replica)
    assert seen.get("routing_edge_refusing", edge=good.peer.identity, region=WEST) == 0
    assert (seen.get("routing_edge_behind_versions", edge=bad.peer.identity, region=EAST) or 0) > 0
    assert seen.get("routing_edge_live", edge=good.peer.identity, region=WEST) == 1
    assert seen.get("routing_edge_ahead", edge=good.peer.identity, region=WEST) == 0


async def test_an_edge_with_a_newer_snapshot_than_the_database_is_ahead(world: World) -> None:
    edge = world.edges[0]
    assert edge.snapshot is not None
    edge.snapshot = edge.snapshot.model_copy(update={"version": edge.snapshot.version + 7})
    await edge.post()
    seen = await scrape(world.replica)
    assert seen.get("routing_edge_ahead", edge=edge.peer.identity, region=WEST) == 1
    assert seen.get("routing_edge_behind_versions", edge=edge.peer.identity, region=WEST) == 0


async def test_operations_are_told_from_their_beginning_to_their_end(world: World) -> None:
    before = await scrape(world.replica)
    assert before.get("operations_open", kind="drain", state="running") == 0
    assert before.get("operations_ended_total", kind="drain", state="succeeded", automatic="false") == 0
    async with world.running():
        operation = await world.started("drain", WEST)
        under_way = await scrape(world.replica)
        assert (await world.ended(operation)).state == "succeeded"
    assert sum(under_way.get("operations_open", kind="drain", state=one) or 0 for one in ("planned", "running")) == 1
    assert under_way.get("operations_overdue", kind="drain") == 0
    after = await scrape(world.replica)
    assert after.get("operations_open", kind="drain", state="running") == 0
    assert after.get("operations_ended_total", kind="drain", state="succeeded", automatic="false") == 1
    assert after.get("datacenter_weight", datacenter=WEST, region=WEST) == 0
    assert after.get("model_routable_datacenters", model=MODEL) == 1
    assert {labels for name, labels in after.values if name == "meridian_operations_step_seconds_count"}


async def test_a_refusal_is_told_by_its_rule(world: World) -> None:
    async with world.running():
        await world.ended(await world.started("drain", WEST))
        refused = await world.ask("drain", EAST)
    assert refused.status_code == 409
    rule = refused.json()["rule"]
    assert (await scrape(world.replica)).get("operations_refused_total", kind="drain", rule=rule) == 1


async def test_a_rule_that_was_overruled_refused_nothing(world: World) -> None:
    world.agents[EAST].phase = DeploymentPhase.PROVISIONING
    await world.agents[EAST].sync()
    await world.started("drain", WEST, force=True)
    assert "meridian_operations_refused_total" not in (await scrape(world.replica)).names()


async def test_how_long_a_snapshot_took_to_be_used_is_counted_once_for_each_edge(world: World) -> None:
    name = "meridian_routing_propagation_seconds_count"

    async def counted() -> float:
        return Scrape(await exposed(world.replica)).values[name, frozenset()]

    before = await counted()
    await world.started("drain", WEST, force=True)
    async with asyncio.timeout(10):
        while await counted() < before + 2:
            for edge in world.edges:
                await edge.sync()
    settled = await counted()
    for edge in world.edges:
        await edge.sync()
    assert await counted() >= settled


async def test_a_refused_snapshot_is_counted_once_however_often_it_is_told(world: World) -> None:
    edge = world.edges[0]
    edge.nack = Nack(lineage=1, version=99, error="poisoned")

    async def counted() -> float:
        return Scrape(await exposed(world.replica)).get("routing_snapshots_refused_total", region=WEST) or 0.0

    before = await counted()
    await edge.post()
    await edge.post()
    assert await counted() == before + 1


async def test_a_machines_clock_is_compared_with_ours(world: World) -> None:
    offset_s = Scrape(await exposed(world.replica)).get(
        "control_plane_machine_clock_offset_seconds", kind="edge", identity=world.edges[0].peer.identity)
    assert offset_s is not None
    assert -5 < offset_s <= 0


async def test_a_new_control_plane_tells_what_it_has(replica: Replica) -> None:
    seen = await scrape(replica)
    assert seen.get("routing_lineage") == 1
    assert seen.get("routing_snapshot_age_seconds") is None
    assert (seen.get("usage_open_requests"), seen.get("usage_quarantine_frames")) == (0, 0)
    assert seen.get("automation_frozen") == 0


async def test_only_figures_of_the_table_are_told(world: World) -> None:
    known = {figure.name + suffix for figure in FIGURES for suffix in ("", "_total", "_count", "_sum")}
    assert (await scrape(world.replica)).names() - known == set()


async def test_many_scrapes_at_once_read_once(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, reads = ManualClock(), 0
    board, read = Board(replica.context.db, clock), boards.read

    async def counted(session: object) -> object:
        nonlocal reads
        reads += 1
        return await read(session)  # type: ignore[arg-type]

    monkeypatch.setattr(boards, "read", counted)
    texts = await asyncio.gather(*(board.text() for _ in range(20)))
    assert (len(set(texts)), reads) == (1, 1)
    clock.advance(boards.FRESH_S)
    await board.text()
    assert reads == 2


async def test_without_postgres_there_are_no_figures_of_it_and_no_old_ones(
        database_url: str, tmp_path: Path) -> None:
    async with gated(database_url) as (gate, url), running_replica(url, tmp_path) as replica:
        assert "meridian_routing_lineage 1.0" in await exposed(replica)
        await gate.close()
        async with asyncio.timeout(20):
            while "meridian_routing_lineage" in (text := await exposed(replica)):  # noqa: ASYNC110 - over HTTP
                await asyncio.sleep(0.2)
        assert "meridian_control_plane_database_up 0.0" in text
        assert "meridian_control_plane_requests_total" in text
        await gate.open()
        async with asyncio.timeout(30):
            while "meridian_routing_lineage" not in await exposed(replica):  # noqa: ASYNC110 - over HTTP
                await asyncio.sleep(0.2)


async def test_capacity_is_told_by_model_and_what_nobody_measured_is_absent(world: World) -> None:
    seen = await scrape(world.replica)
    assert seen.get("capacity_reserved_requests", model=MODEL) == 0
    assert seen.get("capacity_ready_requests", model=MODEL) is None  # nobody said how much a replica holds
    assert seen.get("capacity_peak_requests", model=MODEL) == 0


async def test_votes_are_told_for_every_datacenter_those_without_one_too(world: World) -> None:
    await vote(world, WEST)
    seen = await scrape(world.replica)
    assert seen.get("routing_votes", datacenter=WEST, verdict="lost") == 1
    assert seen.get("routing_votes", datacenter=EAST, verdict="lost") == 0
    assert seen.get("routing_votes", datacenter=WEST, verdict="faltering") == 0


async def test_attempts_of_the_last_minutes_are_told_by_model_and_datacenter(world: World) -> None:
    edge, minute = world.edges[0], int(world.replica.context.clock.time_s() // 60) * 60
    assert edge.snapshot is not None
    request = EdgeSyncRequest(
        boot_id=edge.boot_id, release="0.1.0", acked_lineage=edge.snapshot.lineage, acked_version=edge.snapshot.version,
        revocations_after=0, open_requests={}, wait_s=0, minutes=[
            QualityMinute(minute=minute, model_id=MODEL, datacenter_id=WEST, succeeded=40, failed=2, excluded=5),
            QualityMinute(minute=minute - 3_600, model_id=MODEL, datacenter_id=WEST, succeeded=1_000)])
    answer = await world.replica.signed(edge.peer, "/edge/v1/sync", request.model_dump_json().encode())
    assert answer.status_code == 200, answer.text
    seen, place = await scrape(world.replica), {"model": MODEL, "datacenter": WEST}
    assert seen.get("quality_attempts_last_5m", **place, outcome="succeeded") == 40
    assert seen.get("quality_attempts_last_5m", **place, outcome="failed") == 2
