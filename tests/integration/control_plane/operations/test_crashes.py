"""A replica that dies in any step, and a Postgres that is killed: another look goes on where the last one ended."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from control_plane.contracts.operations import OF_A_DATACENTER, OperationKind, OperationRequest, OperationState
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations import service
from control_plane.operations.advance import advance
from control_plane.operations.facts import Pace
from control_plane.operations.playbooks import PLAYBOOKS
from control_plane.routing import publisher
from infra.local import child, postgres
from infra.local.ports import free_port
from infra.local.postgres import Postgres
from tests import throwaway
from tests.integration.control_plane.simulated import WEST, World, running_world
from tests.throwaway import RIGHTS

STEPS = [(kind, step) for kind in sorted(OF_A_DATACENTER) for step in PLAYBOOKS[kind].steps]
PACE = Pace(verify_s=0.2, hold_s=0.05, flap_wait_s=0, ack_wait_s=5, evacuate_s=2)
ENDS = {OperationKind.DRAIN: TrafficState.DRAINED, OperationKind.RESTORE: TrafficState.ACTIVE,
        OperationKind.FAILOVER: TrafficState.FAILED}


class Killed(Exception):
    """The replica stopped here: what it had not committed never was."""


class DoomedReplica:
    """Moves one operation on under its own lease, which nobody else can take while it lives."""

    def __init__(self, world: World) -> None:
        self._world, self._db = world, world.replica.context.db
        self._operation = ""

    async def create(self, kind: OperationKind) -> str:
        """Creates the operation and leases it in one transaction."""
        asked = OperationRequest(kind=kind, datacenter=WEST, reason="test")
        async with self._db.begin() as session:
            view = (await service.create(session, asked, "operator:olga", None)).operation
            assert view is not None
            self._operation = view.id
            await session.execute(text(
                "UPDATE operation SET lock_token = 'doomed', lock_expires_at = now() + interval '1 h'"))
        return self._operation

    async def die_in(self, step: str) -> None:
        """Works until `step` is looked at, and dies in that look, before its commit."""
        with contextlib.suppress(Killed):
            while True:
                if not await self._look(fatal_step=step):
                    await asyncio.sleep(0.05)

    async def look(self) -> None:
        """One more look, committed."""
        await self._look()

    async def be_gone(self) -> None:
        """The lease that it left behind runs out."""
        async with self._db.begin() as session:
            await session.execute(text("UPDATE operation SET lock_expires_at = now() WHERE lock_token = 'doomed'"))

    async def _look(self, fatal_step: str | None = None) -> bool:
        async with self._db.begin() as session:
            current = (await session.execute(text(
                "SELECT name FROM operation_step WHERE state IN ('pending', 'running') ORDER BY seq LIMIT 1"))).scalar()
            again = await advance(session, self._world.replica.context.signing_key, self._operation, "doomed", PACE)
            if current == fatal_step:
                raise Killed
        return again


@pytest.mark.parametrize(("kind", "step"), STEPS)
async def test_an_operation_goes_on_after_its_replica_died_in_a_step(
        database_url: str, tmp_path: Path, kind: OperationKind, step: str) -> None:
    """It dies once before the step's commit and once after it; then another replica takes over."""
    async with running_world(database_url, tmp_path, edges=1) as world:
        if kind is OperationKind.RESTORE:
            async with world.replica.context.db.begin() as session:
                await session.execute(
                    text("UPDATE datacenter SET traffic_state = 'drained' WHERE id = :id"), {"id": WEST})
                await publisher.publish(session, world.replica.context.signing_key, "test")
        async with world.running():
            doomed = DoomedReplica(world)
            operation = await doomed.create(kind)
            async with asyncio.timeout(60):
                await doomed.die_in(step)
            await doomed.look()
            await doomed.be_gone()
            ended = await world.ended(operation, timeout_s=60)
        assert ended.state is OperationState.SUCCEEDED, ended
        assert await world.traffic(WEST) is ENDS[kind]


class RestartablePostgres:
    """A Postgres that can be killed and started again on the same data: durable, as the real one is."""

    def __init__(self, place: Path) -> None:
        self.server = Postgres(data_dir=place / "data", port=free_port(), log_path=place / "log",
                               superuser_password="superuser", role_password="ordinary")
        self.start()

    def start(self) -> None:
        self._spec = postgres.prepare(self.server, RIGHTS)
        self._process = child.start(self._spec)
        throwaway.run(postgres.wait_ready(self.server))

    def kill(self) -> None:
        child.kill_group(self._process.pid)
        self._process.wait()

    def stop(self) -> None:
        child.stop(self._process, self._spec)


@pytest.fixture
def own_postgres() -> Iterator[RestartablePostgres]:
    with throwaway.directory() as place:
        running = RestartablePostgres(place)
        try:
            throwaway.run(postgres.ensure_role(running.server))
            throwaway.run(postgres.ensure_database(running.server, "meridian"))
            yield running
        finally:
            running.stop()


async def test_a_drain_outlives_a_killed_postgres(own_postgres: RestartablePostgres, tmp_path: Path) -> None:
    async with running_world(own_postgres.server.url("meridian"), tmp_path, edges=1) as world, world.running():
        world.agents[WEST].inflight = 1
        operation = await world.started("drain", WEST)
        await world.until(operation, lambda view: "in flight" in view.steps[3].detail)
        await asyncio.to_thread(own_postgres.kill)
        answer = await world.replica.client.get("/operator/v1/status", headers=world.operator)
        assert (answer.status_code, answer.json()["code"]) == (503, "database_away")
        world.agents[WEST].inflight = 0
        await asyncio.to_thread(own_postgres.start)
        ended = await world.ended(operation, timeout_s=60)
        assert ended.state is OperationState.SUCCEEDED, ended
        assert world.edges[0].weight(WEST) == 0
