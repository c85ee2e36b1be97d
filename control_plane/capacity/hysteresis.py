"""What the planner remembers so that it never swings: how long a pool's signal holds, what was moved lately. Pure.

Safety rule 4: a signal must hold for ten minutes; a model is stepped at most once in five minutes; a step moves at most
a quarter of a fleet's GPUs, and so do all steps of the fleet's models within five minutes; a pool that grew does not
shrink within thirty minutes, nor the other way round.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from control_plane.contracts.deployment import PoolRole

PoolKey = tuple[str, PoolRole]
"""A deployment's id and a role."""

FORGET_AFTER_INTERVALS = 3


class Direction(StrEnum):
    """Which way a pool should go."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Limits:
    """Rule 4's numbers. `interval_s` is how often signals are looked at."""

    low: float = 0.50
    high: float = 0.80
    target: float = 0.65
    sustain_s: float = 600.0
    step_interval_s: float = 300.0
    reversal_s: float = 1_800.0
    step_percent: int = 25
    interval_s: float = 60.0


@dataclass(frozen=True, slots=True)
class PastMove:
    """A pool that was changed at `at_s`: by `replicas`, which hold `gpus`; both negative when it shrank."""

    at_s: float
    model_id: str
    fleet_id: str
    key: PoolKey
    replicas: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Signal:
    """A direction, and since when it holds without a break."""

    direction: Direction
    since_s: float


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals of all pools as of the last look."""

    at_s: float = 0.0
    of: Mapping[PoolKey, Signal] = field(default_factory=dict)


def follow(before: Signals, directions: Mapping[PoolKey, Direction], limits: Limits, now_s: float) -> Signals:
    """The signals after a look. What was not looked at for three intervals was not seen to hold."""
    known = before.of if now_s - before.at_s <= FORGET_AFTER_INTERVALS * limits.interval_s else {}
    found = {}
    for key, direction in sorted(directions.items()):
        held = known.get(key)
        found[key] = held if held is not None and held.direction is direction else Signal(direction, now_s)
    return Signals(now_s, found)


def latest_step_s(history: Iterable[PastMove], model_id: str) -> float | None:
    """When the model was stepped last."""
    return max((move.at_s for move in history if move.model_id == model_id), default=None)


def latest_reverse_s(history: Iterable[PastMove], key: PoolKey, direction: Direction) -> float | None:
    """When the pool was last moved against `direction`."""
    sign = -1 if direction is Direction.UP else 1
    return max((move.at_s for move in history if move.key == key and move.replicas * sign > 0), default=None)


def moved_gpus(history: Iterable[PastMove], fleet_id: str, since_s: float) -> int:
    """How many of a fleet's GPUs changed hands after `since_s`."""
    return sum(abs(move.gpus) for move in history if move.fleet_id == fleet_id and move.at_s > since_s)


def releasing_gpus(history: Iterable[PastMove], fleet_id: str, since_s: float) -> int:
    """GPUs of replicas that were told to go after `since_s`: they may still be finishing what they have."""
    return -sum(move.gpus for move in history if move.fleet_id == fleet_id and move.at_s > since_s and move.gpus < 0)


def swings(history: Sequence[PastMove], within_s: float) -> list[tuple[PastMove, PastMove]]:
    """Moves of one pool that undo each other within a time: what must never be found."""
    found: list[tuple[PastMove, PastMove]] = []
    last: dict[PoolKey, list[PastMove]] = {}
    for move in sorted(history, key=lambda move: move.at_s):
        recent = [one for one in last.get(move.key, []) if move.at_s - one.at_s < within_s]
        found += [(one, move) for one in recent if one.replicas * move.replicas < 0]
        last[move.key] = [*recent, move]
    return found
