"""`POST /edge/v1/sync` on a real database."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import SnapshotRefused
from control_plane.contracts.topology import TopologyDocument
from control_plane.routing.service import BUSY_WAIT_S, MAX_WAIT_S
from control_plane.tenancy import repository as tenancy
from tests.integration.control_plane.replica import running_replica
from tests.integration.control_plane.simulated import (
    EAST,
    WEST,
    SimulatedEdge,
    World,
    declare,
    document,
    eventually,
    running_world,
)


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path, edges=1) as running:
        yield running


async def reweigh(world: World, weight: int) -> None:
    """Makes a new snapshot."""
    whole = document().model_dump(mode="json")
    whole["datacenters"][0]["weight"] = weight
    answer = await declare(world.replica, world.operator, TopologyDocument.model_validate(whole))
    assert answer.status_code == 200, answer.text


async def test_before_anything_is_declared_there_is_no_snapshot(database_url: str, tmp_path: Path) -> None:
    async with running_replica(database_url, tmp_path) as replica:
        edge = SimulatedEdge(replica, await replica.enrolled(IdentityKind.EDGE))
        assert (await edge.sync()).snapshot is None


async def test_an_edge_that_has_the_newest_gets_nothing(world: World) -> None:
    assert (await world.edges[0].sync()).snapshot is None


async def test_the_snapshot_is_signed_by_the_control_plane_alone(world: World) -> None:
    world.edges[0].snapshot = None
    answer = await world.edges[0].sync()
    assert answer.snapshot is not None
    with pytest.raises(SnapshotRefused):
        answer.snapshot.open([SigningKey.generate().public])


async def test_an_edge_with_a_version_from_another_history_gets_the_newest(world: World) -> None:
    edge = world.edges[0]
    assert edge.snapshot is not None
    edge.snapshot = edge.snapshot.model_copy(update={"version": 10_000})
    assert (await edge.sync()).snapshot is not None


async def test_a_waiting_edge_is_answered_as_soon_as_there_is_a_new_snapshot(world: World) -> None:
    poll = asyncio.create_task(world.edges[0].sync(wait_s=9.0))
    await asyncio.sleep(0.3)
    await reweigh(world, 7)
    async with asyncio.timeout(2):
        assert (await poll).snapshot is not None
    assert world.edges[0].weight(WEST) == 7


async def test_a_waiting_edge_is_answered_as_soon_as_a_key_is_revoked(world: World) -> None:
    team = await world.replica.team()
    key = await world.replica.key(team.id)
    poll = asyncio.create_task(world.edges[0].sync(wait_s=9.0))
    await asyncio.sleep(0.3)
    await world.replica.client.delete(f"/operator/v1/keys/{key.id}", headers=world.operator)
    async with asyncio.timeout(2):
        assert len((await poll).revocations) == 1


async def test_a_revocation_whose_hint_was_lost_reaches_a_waiting_edge_within_five_seconds(world: World) -> None:
    key = await world.replica.key((await world.replica.team()).id)
    poll = asyncio.create_task(world.edges[0].sync(wait_s=60.0))
    await asyncio.sleep(0.3)
    async with world.replica.context.db.begin() as session:  # without a word to anybody
        revoked = await tenancy.revoke_key(session, key.id)
        assert revoked is not None
        await tenancy.add_revocation(session, revoked)
    async with asyncio.timeout(5):
        await poll
        if not world.edges[0].revoked:
            await world.edges[0].sync(wait_s=60.0)
    assert len(world.edges[0].revoked) == 1


async def test_a_revocation_comes_once(world: World) -> None:
    key = await world.replica.key((await world.replica.team()).id)
    await world.replica.client.delete(f"/operator/v1/keys/{key.id}", headers=world.operator)
    assert len((await world.edges[0].sync()).revocations) == 1
    assert (await world.edges[0].sync()).revocations == []


async def test_with_nothing_new_the_wait_is_kept(world: World) -> None:
    began = asyncio.get_running_loop().time()
    answer = await world.edges[0].sync(wait_s=0.5)
    assert asyncio.get_running_loop().time() - began >= 0.5
    assert (answer.snapshot, answer.next_wait_s) == (None, MAX_WAIT_S)


async def test_a_refused_snapshot_is_shown_and_not_sent_in_a_loop(world: World) -> None:
    edge = world.edges[0]
    edge.accepts = False
    await reweigh(world, 7)
    await edge.sync()
    began = asyncio.get_running_loop().time()
    assert (await edge.sync(wait_s=0.5)).snapshot is not None
    assert asyncio.get_running_loop().time() - began >= 0.5
    shown = (await world.status()).edges[0]
    assert (shown.nack, shown.behind) == ("poisoned", 1)


async def test_after_a_refusal_a_newer_snapshot_is_sent_at_once(world: World) -> None:
    edge = world.edges[0]
    edge.accepts = False
    await reweigh(world, 7)
    await edge.sync()
    poll = asyncio.create_task(edge.sync(wait_s=9.0))
    await asyncio.sleep(0.3)
    edge.accepts = True
    await reweigh(world, 8)
    async with asyncio.timeout(2):
        await poll
    assert (edge.weight(WEST), edge.nack) == (8, None)


async def test_an_acknowledgement_clears_the_refusal(world: World) -> None:
    edge = world.edges[0]
    edge.accepts = False
    await reweigh(world, 7)
    await edge.sync()
    edge.accepts = True
    await edge.sync()
    await edge.sync()
    assert (await world.status()).edges[0].nack is None


async def test_reports_are_asked_for_soon_while_traffic_moves(world: World) -> None:
    async with world.running(*world.agents.values()):
        operation = await world.started("drain", WEST)
        await world.until(operation, lambda view: view.steps[1].state == "running")
        assert (await world.edges[0].sync()).next_wait_s == BUSY_WAIT_S


async def test_the_newest_of_many_changes_is_what_the_edge_has_in_the_end(world: World) -> None:
    async with world.running(world.edges[0]):
        for weight in range(1, 16):
            await reweigh(world, weight)
        await eventually(lambda: world.edges[0].weight(WEST) == 15)


async def test_a_model_lost_everywhere_is_explained(world: World) -> None:
    for agent in world.agents.values():
        agent.phase = DeploymentPhase.GONE
        await agent.sync()
    await world.edges[0].sync()
    assert world.edges[0].snapshot is not None
    assert world.edges[0].snapshot.models[0].unroutable_reason == f"{EAST}-a-glm: gone; {WEST}-a-glm: gone"
