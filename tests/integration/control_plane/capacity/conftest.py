"""Two datacenters with known capacity, and samples as agents would have left them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.capacity.work import CapacityWork
from control_plane.contracts.capacity import CapacityView, PlanView
from control_plane.reconcile import runner
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST, WEST, World, declare, document, running_world

POOLS = [{"role": "decode", "replicas": 2, "gpus_per_replica": 1, "max_inflight": 10},
         {"role": "prefill", "replicas": 1, "gpus_per_replica": 1, "max_inflight": 10}]
QUICK: dict[str, Any] = {"capacity_sustain_s": 0.0, "capacity_step_interval_s": 0.0, "capacity_interval_s": 3_600.0,
         "capacity_spare_datacenters": 0}
"""No waiting for a signal to hold, and no turn but those that a test asks for: an operator's word asks for one."""

ASKED = "UPDATE capacity_planner SET planned_at = NULL WHERE lock_token IS NULL RETURNING 1"
DONE = "SELECT 1 FROM capacity_planner WHERE lock_token IS NULL AND planned_at IS NOT NULL"


@dataclass
class Capacity:
    """The world, and what tests of capacity ask of it."""

    world: World

    async def run(self, statement: str, **values: Any) -> list[Any]:
        """The rows of a statement."""
        async with self.world.replica.context.db.begin() as session:
            found = await session.execute(text(statement), values)
            return list(found.all()) if found.returns_rows else []  # type: ignore[attr-defined]

    async def sampled(self, place: str, inflight: int | None, *, queued: int = 0, minutes: int = 30,
                      days_ago: float = 0, kv_usage: float | None = None) -> None:
        """Samples of the last minutes of a datacenter's deployment, as of some days ago."""
        await self.run(
            "INSERT INTO capacity_sample (deployment_id, minute_at, reports, inflight, queued, kv_usage) "
            "SELECT :deployment, date_trunc('minute', now()) - make_interval(mins => n, secs => :ago), 6, "
            ":inflight, :queued, :kv FROM generate_series(1, :minutes) AS n ON CONFLICT (deployment_id, minute_at) "
            "DO UPDATE SET inflight = excluded.inflight, queued = excluded.queued, kv_usage = excluded.kv_usage",
            deployment=f"{place}-a-glm", ago=days_ago * 86_400, inflight=inflight, queued=queued, kv=kv_usage,
            minutes=minutes)

    async def turn(self) -> None:
        """One whole turn of the planner that begins now, by this test or by the replica's own loop."""
        async with asyncio.timeout(10):
            while not await self.run(ASKED):  # noqa: ASYNC110 - what is waited for is in the database
                await asyncio.sleep(0.02)
            await runner.tick(CapacityWork(self.world.replica.context))
            while not await self.run(DONE):  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.02)

    async def mode(self, mode: str) -> None:
        answer = await self.world.replica.client.post(
            "/operator/v1/capacity/mode", json={"mode": mode, "reason": "test"}, headers=self.world.operator)
        assert answer.status_code == 200, answer.text

    async def view(self) -> CapacityView:
        answer = await self.world.replica.client.get("/operator/v1/capacity", headers=self.world.operator)
        assert answer.status_code == 200, answer.text
        return CapacityView.model_validate_json(answer.content)

    async def plan(self) -> PlanView:
        answer = await self.world.replica.client.get("/operator/v1/capacity/plan", headers=self.world.operator)
        assert answer.status_code == 200, answer.text
        return PlanView.model_validate_json(answer.content)

    async def replicas(self) -> dict[tuple[str, str], int]:
        """What every pool shall have."""
        rows = await self.run("SELECT deployment_id, role, replicas FROM pool")
        return {(row[0].removesuffix("-a-glm"), row[1]): row[2] for row in rows}


@pytest.fixture
async def capacity(database_url: str, tmp_path: Path) -> AsyncIterator[Capacity]:
    """Two datacenters whose decode pools hold 20 requests each, in service and heard; the planner is off."""
    async with running_world(database_url, tmp_path, capacity_mode="off", **QUICK) as world:
        deployments = [{"id": f"{place}-a-glm", "model": MODEL, "fleet": f"{place}-a", "pools": POOLS, "engine": {}}
                       for place in (WEST, EAST)]
        answer = await declare(world.replica, world.operator, document(deployments=deployments))
        assert answer.status_code == 200, answer.text
        for agent in world.agents.values():
            await agent.settle()
        yield Capacity(world)
