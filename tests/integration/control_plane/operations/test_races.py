"""Operators and replicas at once, in real concurrent transactions."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts import ids
from control_plane.contracts.operations import OperationKind, OperationRequest, OperationState
from control_plane.db import Database
from control_plane.operations import repository, service
from control_plane.operations.advance import advance
from control_plane.operations.facts import Pace
from tests.integration.control_plane.simulated import EAST, WEST, World, running_world

RACES = 200


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path) as made:
        yield made


async def ask(db: Database, datacenter: str) -> OperationState:
    async with db.begin() as session:
        asked = OperationRequest(kind=OperationKind.DRAIN, datacenter=datacenter, reason="race")
        outcome = await service.create(session, asked, "operator:olga", None)
    return OperationState.REFUSED if outcome.refusal else OperationState.PLANNED


async def forget(db: Database) -> None:
    """Both datacenters as they were, without operations; leases live."""
    async with db.begin() as session:
        await session.execute(text("SELECT id FROM datacenter ORDER BY id FOR UPDATE"))
        for table in ("command", "operation_step", "operation_claim", "operation"):
            await session.execute(text(f"DELETE FROM {table}"))  # noqa: S608
        await session.execute(text("UPDATE datacenter SET traffic_state = 'active'"))
        await session.execute(text("UPDATE agent_lease SET expires_at = now() + interval '1 h'"))


async def test_of_two_drains_of_the_last_two_datacenters_exactly_one_starts(database_url: str, tmp_path: Path) -> None:
    """The replica's runner is idle here: its operations vanish between races."""
    async with running_world(database_url, tmp_path, edges=0) as world:
        db = world.replica.context.db
        outcomes: Counter[tuple[str, ...]] = Counter()
        for _ in range(RACES):
            await forget(db)
            both = await asyncio.gather(ask(db, WEST), ask(db, EAST))
            outcomes[tuple(sorted(state.value for state in both))] += 1
        assert outcomes == {("planned", "refused"): RACES}


async def test_two_drains_that_were_both_planned_do_not_both_close(world: World) -> None:
    """Planned behind the rule's back, the rule still holds where the traffic is taken away."""
    db = world.replica.context.db
    for _ in range(RACES // 20):
        await forget(db)
        async with db.begin() as session:
            await session.execute(text(
                "INSERT INTO operation (id, kind, datacenter_id, subject, state, reason, requested_by, forced, "
                "deadline_at, lock_token, lock_expires_at) SELECT 'op_' || id, 'drain', id, id, 'running', 'race', "
                "'test', false, now() + interval '1 h', 'me', now() + interval '1 h' FROM datacenter"))
            await session.execute(text(
                "INSERT INTO operation_step (operation_id, seq, name, state, memory) "
                "SELECT id, 1, 'ramp', 'pending', '{}' FROM operation"))
        await asyncio.gather(*[look(world, f"op_{place}", "me") for place in (WEST, EAST)])
        assert sorted([await world.traffic(WEST), await world.traffic(EAST)]) in (
            ["active", "active"], ["active", "draining"])


async def look(world: World, operation: str, token: str) -> bool:
    async def work(session: AsyncSession) -> bool:
        return await advance(session, world.replica.context.signing_key, operation, token, Pace())

    return await world.replica.context.db.run(work)


async def test_an_operation_is_leased_to_one_of_many_replicas(database_url: str) -> None:
    db = Database(database_url)
    async with db.begin() as session:
        await session.execute(text("INSERT INTO region VALUES ('r')"))
        await session.execute(text(
            "INSERT INTO datacenter (id, region_id, traffic_state, weight, generation, changed_by, reason) "
            "VALUES ('dc', 'r', 'active', 1, 1, 'test', 'test')"))
        await session.execute(text(
            "INSERT INTO operation (id, kind, datacenter_id, subject, state, reason, requested_by, forced, "
            "deadline_at) VALUES ('op_1', 'drain', 'dc', 'dc', 'planned', 'race', 'test', false, now())"))

    async def lease() -> list[str]:
        async with db.begin() as session:
            return list(await repository.lease_open(session, ids.nonce(), 30.0, 8))

    leased = [item for found in await asyncio.gather(*[lease() for _ in range(10)]) for item in found]
    await db.aclose()
    assert leased == ["op_1"]


async def test_a_replica_that_lost_its_lease_changes_nothing(world: World) -> None:
    operation = await world.started("drain", WEST)
    async with world.replica.context.db.begin() as session:
        await session.execute(text(
            "UPDATE operation SET lock_token = 'other', lock_expires_at = now() + interval '1 h'"))
    before = await world.operation(operation)
    assert not await look(world, operation, "mine")
    assert await world.operation(operation) == before


async def test_cancelling_while_replicas_work_ends_in_one_place(world: World) -> None:
    """Whoever wins, the traffic state fits the operation's end."""
    for _ in range(5):
        async with world.running():
            operation = await world.started("drain", WEST)
            answer = await world.replica.client.post(
                f"/operator/v1/operations/{operation}/cancel", headers=world.operator)
            assert answer.status_code in (200, 409), answer.text
            ended = await world.ended(operation)
        expected = {OperationState.CANCELLED: "active", OperationState.SUCCEEDED: "drained"}
        assert await world.traffic(WEST) == expected[ended.state]
        await forget(world.replica.context.db)
