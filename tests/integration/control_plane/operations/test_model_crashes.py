"""A replica that dies in any step of a shift or of a rollout: another one goes on where it ended."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from control_plane.contracts.operations import OperationKind, OperationRequest, OperationState, RolloutOrder, ShiftOrder
from control_plane.operations import service
from control_plane.operations.playbooks import PLAYBOOKS
from tests.integration.control_plane.operations.test_crashes import DoomedReplica
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST, WEST, World, running_world

NEW = {"kind": "sim", "revision": "new"}
ORDERS = {
    OperationKind.SHIFT: OperationRequest(kind=OperationKind.SHIFT, reason="test", shift=ShiftOrder(
        model=MODEL, source=WEST, target=EAST, percent=20, step_percent=10, interval_s=0.05)),
    OperationKind.ROLLOUT: OperationRequest(
        kind=OperationKind.ROLLOUT, reason="test", rollout=RolloutOrder.model_validate(
            {"model": MODEL, "engine": NEW, "datacenters": [WEST], "watch_s": 0.1})),
}
STEPS = [(kind, step) for kind in ORDERS for step in PLAYBOOKS[kind].steps]


class DoomedModelReplica(DoomedReplica):
    """The same for an operation of a model."""

    async def create(self, kind: OperationKind) -> str:
        async with self._db.begin() as session:
            view = (await service.create(session, ORDERS[kind], "operator:olga", None)).operation
            assert view is not None
            self._operation = view.id
            await session.execute(text(
                "UPDATE operation SET lock_token = 'doomed', lock_expires_at = now() + interval '1 h'"))
        return self._operation


def shares(world: World) -> dict[str, int]:
    assert world.edges[0].snapshot is not None
    return {route.datacenter_id: route.share_permille for route in world.edges[0].snapshot.models[0].routes}


async def probes(world: World) -> list[int]:
    """The rounds that were asked."""
    async with world.replica.context.db.begin() as session:
        found = await session.execute(text("SELECT round FROM command WHERE kind = 'probe' ORDER BY round"))
        return [int(row[0]) for row in found]


@pytest.mark.parametrize(("kind", "step"), STEPS)
async def test_it_goes_on_after_its_replica_died_in_a_step(
        database_url: str, tmp_path: Path, kind: OperationKind, step: str) -> None:
    """It dies once before the step's commit and once after it; then another replica takes over."""
    async with running_world(database_url, tmp_path, edges=1) as world, world.running():
        doomed = DoomedModelReplica(world)
        operation = await doomed.create(kind)
        async with asyncio.timeout(60):
            await doomed.die_in(step)
        await doomed.look()
        await doomed.be_gone()
        ended = await world.ended(operation, timeout_s=60)
        assert ended.state is OperationState.SUCCEEDED, ended
        if kind is OperationKind.SHIFT:
            assert shares(world) == {WEST: 800, EAST: 1_200}
        else:
            assert shares(world) == {WEST: 1_000, EAST: 1_000}
            assert [one.engine for one in world.agents[WEST].desired.deployments] == [NEW]  # type: ignore[union-attr]
            assert await probes(world) == [0, 1, 2]
