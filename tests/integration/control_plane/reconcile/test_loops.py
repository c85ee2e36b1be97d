"""The loops of a replica on a real Postgres: woken by hints, right by polling, alone in what they do."""

import asyncio
from pathlib import Path

from sqlalchemy import text

from control_plane.contracts.operations import OperationState
from tests.integration.control_plane.replica import running_replica
from tests.integration.control_plane.simulated import WEST, running_world


async def test_two_replicas_share_the_work(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, edges=1) as world, running_replica(database_url, tmp_path):
        async with world.running():
            ended = await world.ended(await world.started("drain", WEST))
        assert ended.state is OperationState.SUCCEEDED
        audit = await world.replica.client.get(f"/operator/v1/audit?target=datacenter:{WEST}", headers=world.operator)
        assert [event["action"] for event in audit.json()["data"]] == ["drain.succeeded", "drain.create"]


async def test_an_operation_is_found_without_a_hint(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, edges=0) as world:
        async with world.replica.context.db.begin() as session:
            await session.execute(text(
                "INSERT INTO operation (id, kind, datacenter_id, subject, state, reason, requested_by, forced, "
                "deadline_at) VALUES ('op_1', 'drain', :id, :id, 'planned', 'test', 'test', true, "
                "now() + interval '1 h')"), {"id": WEST})
            await session.execute(text(
                "INSERT INTO operation_step (operation_id, seq, name, state, memory) "
                "VALUES ('op_1', 1, 'preflight', 'pending', '{}')"))
        ended = await world.ended("op_1", timeout_s=10)
        assert ended.state is OperationState.SUCCEEDED


async def test_a_broken_operation_does_not_stop_another(database_url: str, tmp_path: Path) -> None:
    """An operation without a single step is a fault that no code makes; it must stay alone with it."""
    async with running_world(database_url, tmp_path, edges=1) as world:
        async with world.replica.context.db.begin() as session:
            await session.execute(text(
                "INSERT INTO operation (id, kind, datacenter_id, subject, state, reason, requested_by, forced, "
                "deadline_at) SELECT 'op_0', 'drain', id, id, 'planned', 'test', 'test', true, now() FROM datacenter "
                "WHERE id <> :id"),
                {"id": WEST})
        async with world.running():
            ended = await world.ended(await world.started("drain", WEST, force=True))
        assert ended.state is OperationState.SUCCEEDED


async def test_a_lost_connection_costs_nothing_but_time(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path, edges=1) as world, world.running():
        operation = await world.started("drain", WEST)
        for _ in range(5):
            async with world.replica.context.db.begin() as session:
                await session.execute(text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"))
            await asyncio.sleep(0.1)
        assert (await world.ended(operation)).state is OperationState.SUCCEEDED
