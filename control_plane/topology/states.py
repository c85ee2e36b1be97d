"""The moves of a datacenter's traffic state and of a deployment's phase, as tables.

Traffic states are intent: only operations move them, and a move that is not in the table is a fault. Phases are what
agents see: a report may skip steps, because polls get lost, but a deployment that was retiring or gone must be seen
starting before it counts as ready again.
"""

from enum import StrEnum

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.snapshot import TrafficState


class IllegalTransition(Exception):
    """A move that the table does not hold."""

    def __init__(self, before: StrEnum, event: StrEnum) -> None:
        super().__init__(f"'{event}' is no move from '{before}'")


class TrafficEvent(StrEnum):
    """What moves a datacenter's traffic."""

    DRAIN = "drain"
    SETTLE = "settle"
    REOPEN = "reopen"
    FAIL = "fail"
    RECOVER = "recover"
    WARM = "warm"
    OPEN = "open"
    ABANDON = "abandon"


TRAFFIC_MOVES: dict[tuple[TrafficState, TrafficEvent], TrafficState] = {
    (TrafficState.ACTIVE, TrafficEvent.DRAIN): TrafficState.DRAINING,
    (TrafficState.ACTIVE, TrafficEvent.FAIL): TrafficState.FAILED,
    (TrafficState.DRAINING, TrafficEvent.SETTLE): TrafficState.DRAINED,
    (TrafficState.DRAINING, TrafficEvent.REOPEN): TrafficState.ACTIVE,
    (TrafficState.DRAINING, TrafficEvent.WARM): TrafficState.WARMING,
    (TrafficState.DRAINING, TrafficEvent.FAIL): TrafficState.FAILED,
    (TrafficState.DRAINED, TrafficEvent.WARM): TrafficState.WARMING,
    (TrafficState.DRAINED, TrafficEvent.FAIL): TrafficState.FAILED,
    (TrafficState.WARMING, TrafficEvent.OPEN): TrafficState.ACTIVE,
    (TrafficState.WARMING, TrafficEvent.ABANDON): TrafficState.DRAINED,
    (TrafficState.WARMING, TrafficEvent.FAIL): TrafficState.FAILED,
    (TrafficState.FAILED, TrafficEvent.RECOVER): TrafficState.RECOVERING,
    (TrafficState.RECOVERING, TrafficEvent.WARM): TrafficState.WARMING,
    (TrafficState.RECOVERING, TrafficEvent.FAIL): TrafficState.FAILED,
}

_STARTING = frozenset({DeploymentPhase.PENDING, DeploymentPhase.PROVISIONING})
_SERVING = frozenset({DeploymentPhase.READY, DeploymentPhase.DEGRADED})
_ENDING = frozenset({DeploymentPhase.RETIRING, DeploymentPhase.GONE})

PHASE_MOVES: dict[DeploymentPhase, frozenset[DeploymentPhase]] = {
    DeploymentPhase.PENDING: _STARTING | _SERVING | _ENDING,
    DeploymentPhase.PROVISIONING: _STARTING | _SERVING | _ENDING,
    DeploymentPhase.READY: _STARTING | _SERVING | _ENDING,
    DeploymentPhase.DEGRADED: _STARTING | _SERVING | _ENDING,
    DeploymentPhase.RETIRING: _STARTING | _ENDING,
    DeploymentPhase.GONE: _STARTING | {DeploymentPhase.GONE},
}

ROUTABLE = _SERVING
"""Phases in which a deployment takes requests; degraded is slower, not lost."""


RAMPED = frozenset({TrafficState.DRAINING, TrafficState.WARMING})
"""The states in which a datacenter takes part of its traffic: on its way out, or back."""


def effective_weight(state: TrafficState, declared: int, ramp_percent: int) -> int:
    """The share of new requests that edges give a datacenter now: what was declared while it is active, that part of it
    while it is on its way, else none. What is not 0 percent is never rounded to none."""
    if state is TrafficState.ACTIVE:
        return declared
    if state in RAMPED and ramp_percent:
        return max(1, declared * ramp_percent // 100)
    return 0


def move_traffic(before: TrafficState, event: TrafficEvent) -> TrafficState:
    """The state after `event`.

    Raises:
        IllegalTransition: the table does not hold this move.
    """
    after = TRAFFIC_MOVES.get((before, event))
    if after is None:
        raise IllegalTransition(before, event)
    return after


def move_phase(before: DeploymentPhase, seen: DeploymentPhase) -> DeploymentPhase:
    """The phase after an agent reported `seen`.

    Raises:
        IllegalTransition: the table does not hold this move.
    """
    if seen not in PHASE_MOVES[before]:
        raise IllegalTransition(before, seen)
    return seen


def observe_phase(before: DeploymentPhase, seen: DeploymentPhase) -> DeploymentPhase:
    """What to record when an agent reports `seen`: the phase itself, or `pending` for one report when the move skips
    the start. The next report is believed, so that a lost poll delays and never blocks."""
    try:
        return move_phase(before, seen)
    except IllegalTransition:
        return DeploymentPhase.PENDING
