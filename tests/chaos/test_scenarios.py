"""Every scenario at its ordinary size on a whole stack; `./dev chaos` runs the same ones at any size."""

from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos import checker
from tests.chaos.report import Report
from tests.chaos.scenarios.every import every
from tests.chaos.scenarios.scenario import Size
from tests.chaos.world import World
from tests.e2e.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(400)]
SEED = 1


@pytest.mark.parametrize("name", list(every()))
def test_every_property_of_a_scenario_holds(stack: LocalStack, tmp_path: Path, name: str) -> None:
    world = World(stack, tmp_path / "history", SEED, Report(Console(width=140)))
    try:
        found = every()[name].run(world, Size())
    finally:
        world.close()
    world.report.table(name, found)  # pytest shows it where the test fails
    assert [one.name for one in checker.failures(found)] == []
