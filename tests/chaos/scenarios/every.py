"""All scenarios, in the order in which they are run: what leaves most behind comes last."""

from tests.chaos.scenarios import black_hole, death, drain, kills, outage
from tests.chaos.scenarios.scenario import Scenario


def every() -> dict[str, Scenario]:
    """By name."""
    found = [module.SCENARIO for module in (drain, black_hole, death, outage, kills)]
    return {scenario.name: scenario for scenario in found}
