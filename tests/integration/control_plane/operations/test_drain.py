"""A drain through the real HTTP routes, with simulated agents and edges that sync as real ones do."""

from pathlib import Path

from control_plane.contracts.operator import OperationState
from control_plane.contracts.snapshot import TrafficState
from tests.integration.control_plane.simulated import EAST, WEST, running_world


async def test_a_drain_of_an_idle_datacenter_ends_drained(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path) as world, world.running():
        ended = await world.ended(await world.started("drain", WEST))
        assert ended.state is OperationState.SUCCEEDED, ended
        assert await world.traffic(WEST) is TrafficState.DRAINED
        assert [edge.weight(WEST) for edge in world.edges] == [0, 0]
        assert [edge.weight(EAST) for edge in world.edges] == [100, 100]
