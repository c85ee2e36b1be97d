"""What a scenario is, and how large a run of it."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.checker import Property
from tests.chaos.world import World


@dataclass(frozen=True)
class Size:
    """How large a run is; each scenario reads what concerns it."""

    kills: int = 50
    requests: int = 2_000
    outage_s: float = 60.0
    per_s: float = 55.0


@dataclass(frozen=True)
class Scenario:
    """One of them: its name on the command line, what it does in a few words, and how it is run."""

    name: str
    summary: str
    run: Callable[[World, Size], list[Property]]
