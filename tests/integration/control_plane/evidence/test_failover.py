"""A quorum of edges makes one automatic failover, on a real database and the real loops."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from control_plane.contracts.evidence import VoteVerdict
from control_plane.contracts.operations import OperationKind, OperationState, OperationView
from control_plane.contracts.snapshot import TrafficState
from control_plane.evidence import repository
from control_plane.evidence.quorum import Rules
from control_plane.evidence.work import ACTOR, FailoverWork, count_votes
from tests.integration.control_plane.evidence.voting import (
    AFTER_S,
    AMERICA,
    ASIA,
    EUROPE,
    VotingEdge,
    operations,
    voting_world,
)
from tests.integration.control_plane.replica import running_replica
from tests.integration.control_plane.simulated import World

Voting = tuple[World, list[VotingEdge]]


@pytest.fixture
async def voting(database_url: str, tmp_path: Path) -> AsyncIterator[Voting]:
    async with voting_world(database_url, tmp_path) as made:
        yield made


async def failed_over(world: World, within_s: float = 15.0) -> OperationView:
    """The automatic failover, once there is one."""
    async with asyncio.timeout(within_s):
        while not (found := await operations(world)):  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.05)
    (one,) = found
    return one


async def never_fails_over(world: World, for_s: float = AFTER_S + 1.6) -> None:
    await asyncio.sleep(for_s)
    assert await operations(world) == []


async def told(world: World) -> str:
    """What an operator reads of the votes."""
    return " | ".join(f"{vote.datacenter} {vote.edges}/{vote.of} {vote.evidence}"
                      for vote in (await world.status()).votes)


async def test_a_quorum_makes_a_failover_that_says_by_whom_and_why(voting: Voting) -> None:
    world, edges = voting
    for edge in edges[:2]:
        edge.against = [EUROPE]
    began_s = asyncio.get_running_loop().time()
    async with world.running():
        operation = await failed_over(world)
        assert asyncio.get_running_loop().time() - began_s >= AFTER_S
        ended = await world.ended(operation.id)
    assert (ended.kind, ended.datacenter, ended.state) == (OperationKind.FAILOVER, EUROPE, OperationState.SUCCEEDED)
    assert (ended.requested_by, ended.automatic) == (ACTOR, True)
    assert ended.reason.startswith("lost to 2 of 3 edges in 2 regions for ")
    assert ended.reason.endswith(": refuses connections")
    assert await world.traffic(EUROPE) is TrafficState.FAILED
    assert [edge.weight(EUROPE) for edge in edges] == [0, 0, 0]


async def test_a_minority_is_shown_and_moves_nothing(voting: Voting) -> None:
    world, edges = voting
    edges[0].against = [EUROPE]
    async with world.running():
        await never_fails_over(world)
        assert await told(world) == f"{EUROPE} 1/3 refuses connections; no failover: 2 of 3 edges have to say so"


async def test_one_region_of_several_is_shown_and_moves_nothing(database_url: str, tmp_path: Path) -> None:
    async with voting_world(database_url, tmp_path, AMERICA, EUROPE, edges=4) as (world, edges):
        async with world.replica.context.db.begin() as session:  # three of the four are in one region
            await session.execute(text("UPDATE identity SET subject = :here WHERE id <> :other AND kind = 'edge'"),
                                  {"here": AMERICA, "other": edges[1].peer.identity})
        await asyncio.sleep(world.replica.context.settings.identity_cache_s + 0.2)
        for edge in (edges[0], edges[2], edges[3]):
            edge.against = [EUROPE]
        async with world.running():
            await never_fails_over(world)
            assert "edges in 2 regions have to say so" in await told(world)


async def test_an_edge_that_changes_its_mind_ends_it(voting: Voting) -> None:
    world, edges = voting
    for edge in edges:
        edge.against = [EUROPE]
    async with world.running():
        await asyncio.sleep(AFTER_S / 2)
        for edge in edges:
            edge.against = []
        await never_fails_over(world)
    assert (await world.status()).votes == []


async def test_a_vote_that_comes_and_goes_counts_from_its_return(voting: Voting) -> None:
    world, edges = voting
    async with world.running():
        for at in range(12):
            for edge in edges:
                edge.against = [EUROPE] if at % 2 else []
            await asyncio.sleep(AFTER_S / 3)
    assert await operations(world) == []


async def test_a_restarted_edges_votes_begin_anew(voting: Voting) -> None:
    world, (edge, *_) = voting
    edge.against = [EUROPE]
    await edge.sync()
    await asyncio.sleep(0.3)
    held = (await world.status()).votes[0].held_s
    edge.boot_id = "boot-2"
    await edge.sync()
    again = (await world.status()).votes[0].held_s
    assert again < 0.3 <= held


async def test_faltering_is_shown_and_moves_nothing(voting: Voting) -> None:
    world, edges = voting
    for edge in edges:
        edge.against, edge.verdict = [EUROPE], VoteVerdict.FALTERING
    async with world.running():
        await never_fails_over(world)
        assert [(vote.verdict, vote.edges) for vote in (await world.status()).votes] == [("faltering", 3)]


async def test_nothing_moves_while_automation_is_frozen_and_it_does_once_that_ends(voting: Voting) -> None:
    world, edges = voting
    async with world.replica.context.db.begin() as session:
        await session.execute(text("UPDATE automation SET frozen = true, reason = 'a test', by = 'olga'"))
    for edge in edges:
        edge.against = [EUROPE]
    async with world.running():
        await never_fails_over(world)
        assert "no failover: automation is frozen" in await told(world)
        figures = (await world.replica.client.get("/metrics")).text
        assert f'meridian_failover_blocked{{datacenter="{EUROPE}"}} 1.0' in figures
        assert f'meridian_failover_blocked{{datacenter="{ASIA}"}} 0.0' in figures
        async with world.replica.context.db.begin() as session:
            await session.execute(text("UPDATE automation SET frozen = false, reason = NULL, by = NULL"))
        assert (await failed_over(world)).datacenter == EUROPE


async def test_the_last_datacenter_stays_and_status_says_why(database_url: str, tmp_path: Path) -> None:
    async with voting_world(database_url, tmp_path, AMERICA, EUROPE, edges=2) as (world, edges), world.running():
        ended = await world.ended(await world.started("drain", AMERICA))
        assert ended.state is OperationState.SUCCEEDED
        for edge in edges:
            edge.against = [EUROPE]
        await asyncio.sleep(AFTER_S + 1.6)
        assert [one.kind for one in await operations(world)] == [OperationKind.DRAIN]
        assert "last healthy datacenter" in await told(world)


async def test_one_datacenter_at_a_time(voting: Voting) -> None:
    world, edges = voting
    for edge in edges:
        edge.against = [EUROPE, ASIA]
    async with world.running():
        first = await failed_over(world)
        await world.ended(first.id)
        await asyncio.sleep(2.0)
        found = await operations(world)
    assert len(found) == 1
    assert [await world.traffic(place) for place in (AMERICA, EUROPE, ASIA)].count(TrafficState.FAILED) == 1


async def test_a_restored_datacenter_is_left_alone_for_a_while(voting: Voting) -> None:
    world, edges = voting
    for edge in edges:
        edge.against = [EUROPE]
    async with world.running():
        await world.ended((await failed_over(world)).id)
        restored = await world.ended(await world.started("restore", EUROPE))
        assert restored.state is OperationState.SUCCEEDED, restored
        await asyncio.sleep(AFTER_S + 1.6)
        assert [one.kind for one in await operations(world)] == [OperationKind.RESTORE, OperationKind.FAILOVER]
        assert "not again within 600 s" in await told(world)


async def test_two_replicas_make_one_failover(database_url: str, tmp_path: Path) -> None:
    async with (voting_world(database_url, tmp_path) as (world, edges),
                running_replica(database_url, tmp_path, failover_after_s=AFTER_S)):
        for edge in edges:
            edge.against = [EUROPE]
        async with world.running():
            await failed_over(world)
            await asyncio.sleep(2.0)
            assert len(await operations(world)) == 1


async def test_a_count_under_a_lost_lease_changes_nothing(voting: Voting) -> None:
    world, edges = voting
    for edge in edges:
        edge.against = [EUROPE]
        await edge.sync()
    work = FailoverWork(world.replica.context)
    async with world.replica.context.db.begin() as session:
        await session.execute(text(
            "UPDATE failover_watch SET lock_token = 'another', lock_expires_at = now() + interval '1 h'"))
    assert await work.lease("mine") == []
    await asyncio.sleep(AFTER_S + 0.2)
    await work.advance("votes", "mine")
    assert await operations(world) == []


async def test_counts_that_race_make_one_failover(voting: Voting) -> None:
    world, edges = voting
    for edge in edges:
        edge.against = [EUROPE]
        await edge.sync()
    await asyncio.gather(*(world.replica.context.db.run(
        lambda session: count_votes(session, Rules(after_s=0.0))) for _ in range(8)))
    assert len(await operations(world)) == 1


async def test_votes_of_an_edge_that_is_revoked_do_not_count(voting: Voting) -> None:
    world, edges = voting
    for edge in edges[:2]:
        edge.against = [EUROPE]
        await edge.sync()
    await edges[2].sync()
    async with world.replica.context.db.begin() as session:
        await session.execute(text("UPDATE identity SET revoked_at = now() WHERE id = :id"),
                              {"id": edges[0].peer.identity})
    async with world.replica.context.db.begin() as session:
        assert {vote.edge_id for vote in await repository.votes(session)} == {edges[1].peer.identity}
