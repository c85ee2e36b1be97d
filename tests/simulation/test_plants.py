"""Each planted bug is caught, by the invariant that is there for it, within few seeds."""

from collections.abc import Iterator

import pytest

from tests.simulation.plants import PLANTS, planted
from tests.simulation.run import SeedOutcome, run_seed

SEEDS = 60
CAUGHT_BY = {
    "act-before-save": "durable before acted on",
    "dropped-ack": "every outcome of a command is heard",
    "re-stamped-id": "every request has its record",
    "ship-before-fsync": "what is shipped is durable",
    "skipped-lock": "no unexpected error",
    "stale-epoch": "no action under a stale epoch",
    "unchecked-snapshot": "no poisoned snapshot is taken",
}
"""The invariant that is there for each. What follows from a bug may be noticed first: one of the seeds says this."""


def test_every_plant_has_an_invariant() -> None:
    assert set(CAUGHT_BY) == set(PLANTS)


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_caught(name: str) -> None:
    with planted(name):
        found = {outcome.violation[0] for outcome in _until(name) if outcome.violation}
    assert CAUGHT_BY[name] in found, f"{SEEDS} seeds did not notice {name}, but {found}"


def _until(name: str) -> Iterator[SeedOutcome]:
    """Seeds, until one says what it shall."""
    for outcome in map(run_seed, range(SEEDS)):
        yield outcome
        if outcome.violation and outcome.violation[0] == CAUGHT_BY[name]:
            return


def test_a_plant_is_taken_out_again() -> None:
    with planted("act-before-save"):
        assert run_seed(0).violation is not None
    assert run_seed(0).violation is None
