"""Bugs that must never come back are planted, and the suites must say so; the same runs without them say nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.small import small_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
KILLS = 2
RACE = "tests/integration/control_plane/operations/test_races.py"
RACES = "test_of_two_drains_of_the_last_two_datacenters_exactly_one_starts"
DEADLINE_S = 100.0


async def broken(directory: Path, plant: str = "", forgets: bool = False, kills: int = KILLS) -> set[str]:
    """The names of what did not hold."""
    async with small_world(directory, seed=7, plant=plant, forgets=forgets) as world:
        await world.run(kills)
        if forgets:
            assert world.forgotten_bytes, "the power was never lost at a bad moment"
        return {one.name for one in checker.failures(world.properties())}


async def test_an_edge_that_is_killed_under_load_holds_every_property(tmp_path: Path) -> None:
    assert await broken(tmp_path) == set()


async def test_an_edge_that_stamps_anew_what_it_ships_again_is_caught(tmp_path: Path) -> None:
    found = await broken(tmp_path, "restamp_id")
    assert {"usage records lost (finished, no record)", "records of requests that clients do not know"} <= found


async def test_a_loss_of_power_makes_no_second_truth(tmp_path: Path) -> None:
    """What was finished within the last moments is settled later by the engine's witness; nothing is told twice."""
    found = await broken(tmp_path, forgets=True)
    assert found <= {"usage records lost (finished, no record)", "finished, and billed otherwise than delivered",
                     "answers begun and never accounted for"}


async def test_an_edge_that_ships_before_it_is_durable_is_caught_by_a_loss_of_power(tmp_path: Path) -> None:
    assert "frames in quarantine" in await broken(tmp_path, "ship_before_fsync", forgets=True)


def test_rules_that_hold_no_lock_are_caught_by_the_races() -> None:
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.chaos.plants.skip_lock", RACE, "-k",
                           RACES], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 1, done.stdout[-2000:]
    assert f"FAILED {RACE}::{RACES}" in done.stdout
