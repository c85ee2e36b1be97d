"""Seeds of the simulated world: every invariant holds, and what is rare occurs."""

import pytest

from tests.simulation.__main__ import failure
from tests.simulation.run import Campaign, run_many
from tests.simulation.situations import missing

FEW, MANY = 40, 500
STEPS = 100_000


def run(start: int, seeds: int) -> Campaign:
    """Seeds that all have to hold; what failed is told as a person reads it."""
    campaign = run_many(start, seeds)
    print(f"{campaign.seeds} seeds, {campaign.steps:,} steps in {campaign.wall_s:.1f} s")  # noqa: T201
    assert not campaign.failures, "\n".join(map(failure, campaign.failures))
    return campaign


def test_every_invariant_holds_in_a_few_seeds() -> None:
    campaign = run(0, FEW)
    assert campaign.seeds == FEW
    assert campaign.steps > 100 * FEW


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_invariant_holds_in_many_seeds_and_every_situation_is_reached() -> None:
    campaign = run(1_000, MANY)
    assert missing(campaign.reached) == []
    assert campaign.steps >= STEPS, "too little happens for what it shall prove"
