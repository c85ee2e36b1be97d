"""The steps of each operation and what each one waits for: pure decisions over facts read in one transaction.

Every step is re-entrant: it looks at the facts, not at what it did before, so any replica can go on with it after a
crash in any place. Times are Unix seconds of the database's clock.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from control_plane.contracts.operator import OperationKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.machine import OPEN_COMMANDS, CommandStatus
from control_plane.operations.safety import Violation
from control_plane.topology.states import TrafficEvent


class StepName(StrEnum):
    """What an operation is made of."""

    PREFLIGHT = "preflight"
    CLOSE = "close"
    AWAIT_EDGES = "await_edges"
    AWAIT_IDLE = "await_idle"
    VERIFY = "verify"
    SETTLE = "settle"
    WARM = "warm"
    PROBE = "probe"
    OPEN = "open"


PLAYBOOKS: dict[OperationKind, tuple[StepName, ...]] = {
    OperationKind.DRAIN: (StepName.PREFLIGHT, StepName.CLOSE, StepName.AWAIT_EDGES, StepName.AWAIT_IDLE,
                          StepName.VERIFY, StepName.SETTLE),
    OperationKind.RESTORE: (StepName.PREFLIGHT, StepName.WARM, StepName.PROBE, StepName.OPEN, StepName.AWAIT_EDGES),
}

STARTS_FROM: dict[OperationKind, frozenset[TrafficState]] = {
    OperationKind.DRAIN: frozenset({TrafficState.ACTIVE, TrafficState.DRAINING}),
    OperationKind.RESTORE: frozenset({TrafficState.DRAINED, TrafficState.DRAINING, TrafficState.FAILED,
                                      TrafficState.RECOVERING, TrafficState.WARMING}),
}
"""The traffic states in which an operation makes sense; some of them are an earlier one's unfinished work."""

CANCELLING: dict[OperationKind, dict[TrafficState, TrafficEvent]] = {
    OperationKind.DRAIN: {TrafficState.DRAINING: TrafficEvent.REOPEN},
    OperationKind.RESTORE: {TrafficState.WARMING: TrafficEvent.ABANDON},
}
"""How a cancelled operation's traffic goes back to where it was."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things are looked at before they are believed."""

    verify_s: float = 2.0
    probe_observations: int = 3
    edge_excused_after_s: float = 15.0


@dataclass(frozen=True, slots=True)
class EdgeFacts:
    """What an edge last said. `open_requests` are those in the operation's datacenter."""

    id: str
    seen_at_s: float
    acked: tuple[int, int]
    nack: str | None
    open_requests: int


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What a fleet's agent last said. `inflight` is null when it could not be read; `unready` says in words which
    deployments are not ready at their generation, empty if all are; `command` is this operation's order to it."""

    id: str
    lease_live: bool
    observed_at_s: float | None
    inflight: int | None
    unready: str
    command: CommandStatus | None


@dataclass(frozen=True, slots=True)
class Memory:
    """What a step remembers between two looks; stored with it."""

    quiet_since_s: float | None = None
    healthy: int = 0
    observed_at_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a step decides by. `snapshot` is the newest that edges can have; `violation` is the safety rule that
    the operation would break, null when it was forced."""

    now_s: float
    deadline_s: float
    datacenter_id: str
    traffic_state: TrafficState
    snapshot: tuple[int, int]
    edges: tuple[EdgeFacts, ...]
    fleets: tuple[FleetFacts, ...]
    violation: Violation | None
    forced: bool
    memory: Memory
    pace: Pace

    @property
    def late(self) -> bool:
        return self.now_s >= self.deadline_s

    @property
    def live_edges(self) -> tuple[EdgeFacts, ...]:
        oldest_s = self.now_s - self.pace.edge_excused_after_s
        return tuple(edge for edge in self.edges if edge.seen_at_s > oldest_s)

    @property
    def live_fleets(self) -> tuple[FleetFacts, ...]:
        return tuple(fleet for fleet in self.fleets if fleet.lease_live)


class Verdict(StrEnum):
    """What becomes of a step: it is done, looked at again, or it ends the operation."""

    DONE = "done"
    WAIT = "wait"
    FAIL = "fail"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Decision:
    """`moves` are applied to the datacenter in this order; `order_drain` tells its fleets to drain."""

    verdict: Verdict
    detail: str
    moves: tuple[TrafficEvent, ...] = ()
    order_drain: bool = False
    memory: Memory = Memory()


def decide(kind: OperationKind, step: StepName, facts: Facts) -> Decision:
    """What to do about `step` now."""
    if step is StepName.PREFLIGHT:
        return _preflight_drain(facts) if kind is OperationKind.DRAIN else _preflight_restore(facts)
    return _STEPS[step](facts)


def _preflight_drain(facts: Facts) -> Decision:
    if facts.violation and facts.traffic_state is TrafficState.ACTIVE:
        return Decision(Verdict.REFUSE, facts.violation.message)
    return Decision(Verdict.DONE, f"{facts.datacenter_id} may be drained"
                    + (" (forced)" if facts.forced else ""))


def _close(facts: Facts) -> Decision:
    if facts.traffic_state is TrafficState.DRAINING:
        return Decision(Verdict.DONE, "takes no new requests")
    if facts.traffic_state is not TrafficState.ACTIVE:
        return _overtaken(facts)
    if facts.violation:
        return Decision(Verdict.REFUSE, facts.violation.message)
    return Decision(Verdict.DONE, "takes no new requests", moves=(TrafficEvent.DRAIN,))


def _await_edges(facts: Facts) -> Decision:
    behind = [edge for edge in facts.live_edges if edge.acked < facts.snapshot]
    version = facts.snapshot[1]
    if not behind:
        silent = len(facts.edges) - len(facts.live_edges)
        count = len(facts.live_edges)
        return Decision(Verdict.DONE, f"{count} {'edge routes' if count == 1 else 'edges route'} by version {version}"
                        + (f"; {silent} not heard from {'is' if silent == 1 else 'are'} excused" if silent else ""))
    waiting = f"waits for version {version} at " + ", ".join(_edge(edge) for edge in behind)
    if facts.late:
        return Decision(Verdict.FAIL, f"deadline passed: {waiting}")
    return Decision(Verdict.WAIT, waiting)


def _await_idle(facts: Facts) -> Decision:
    if any(fleet.command is None for fleet in facts.fleets):
        return Decision(Verdict.WAIT, "tells the fleets to drain", order_drain=True)
    busy = _busy(facts)
    if not busy:
        silent = [fleet.id for fleet in facts.fleets if not fleet.lease_live]
        return Decision(Verdict.DONE, "no request is open" + (f"; {', '.join(silent)} not heard" if silent else ""))
    if facts.late:
        return Decision(Verdict.DONE, f"the deadline passed with {busy}")
    return Decision(Verdict.WAIT, f"waits for {busy}")


def _verify(facts: Facts) -> Decision:
    busy = _busy(facts)
    if busy and facts.late:
        return Decision(Verdict.DONE, f"not idle at the deadline: {busy}")
    if busy:
        return Decision(Verdict.WAIT, f"busy again: {busy}")
    quiet_since_s = facts.memory.quiet_since_s or facts.now_s
    quiet_s = facts.now_s - quiet_since_s
    heard = all(edge.seen_at_s >= quiet_since_s for edge in facts.live_edges)
    if quiet_s >= facts.pace.verify_s and heard:
        return Decision(Verdict.DONE, f"idle for {quiet_s:.1f} s")
    return Decision(Verdict.WAIT, f"idle for {quiet_s:.1f} s", memory=Memory(quiet_since_s=quiet_since_s))


def _settle(facts: Facts) -> Decision:
    if facts.traffic_state is TrafficState.DRAINED:
        return Decision(Verdict.DONE, "drained")
    if facts.traffic_state is not TrafficState.DRAINING:
        return _overtaken(facts)
    return Decision(Verdict.DONE, "drained", moves=(TrafficEvent.SETTLE,))


def _preflight_restore(facts: Facts) -> Decision:
    unready = _unready(facts)
    if not unready:
        return Decision(Verdict.DONE, "agents are live and deployments ready")
    if facts.late:
        return Decision(Verdict.FAIL, f"not ready by the deadline: {unready}")
    return Decision(Verdict.WAIT, f"waits: {unready}")


def _warm(facts: Facts) -> Decision:
    moves: dict[TrafficState, tuple[TrafficEvent, ...]] = {
        TrafficState.WARMING: (),
        TrafficState.DRAINED: (TrafficEvent.WARM,),
        TrafficState.DRAINING: (TrafficEvent.WARM,),
        TrafficState.RECOVERING: (TrafficEvent.WARM,),
        TrafficState.FAILED: (TrafficEvent.RECOVER, TrafficEvent.WARM),
    }
    if facts.traffic_state not in moves:
        return _overtaken(facts)
    return Decision(Verdict.DONE, "warming, without traffic", moves=moves[facts.traffic_state])


def _probe(facts: Facts) -> Decision:
    """Counts observations: a look counts once every fleet reported anew since the last one that counted."""
    wanted = facts.pace.probe_observations
    if unready := _unready(facts):
        if facts.late:
            moves = (TrafficEvent.ABANDON,) if facts.traffic_state is TrafficState.WARMING else ()
            return Decision(Verdict.FAIL, f"not healthy by the deadline: {unready}", moves=moves)
        return Decision(Verdict.WAIT, f"0 of {wanted} healthy observations: {unready}")
    seen = {fleet.id: fleet.observed_at_s for fleet in facts.fleets if fleet.observed_at_s is not None}
    anew = all(seen_s > facts.memory.observed_at_s.get(fleet, float("-inf")) for fleet, seen_s in seen.items())
    healthy = facts.memory.healthy + anew
    if healthy >= wanted:
        return Decision(Verdict.DONE, f"{healthy} healthy observations")
    memory = Memory(healthy=healthy, observed_at_s=seen if anew else facts.memory.observed_at_s)
    return Decision(Verdict.WAIT, f"{healthy} of {wanted} healthy observations", memory=memory)


def _open(facts: Facts) -> Decision:
    if facts.traffic_state is TrafficState.ACTIVE:
        return Decision(Verdict.DONE, "takes requests")
    if facts.traffic_state is not TrafficState.WARMING:
        return _overtaken(facts)
    return Decision(Verdict.DONE, "takes requests", moves=(TrafficEvent.OPEN,))


_STEPS: dict[StepName, Callable[[Facts], Decision]] = {
    StepName.CLOSE: _close,
    StepName.AWAIT_EDGES: _await_edges,
    StepName.AWAIT_IDLE: _await_idle,
    StepName.VERIFY: _verify,
    StepName.SETTLE: _settle,
    StepName.WARM: _warm,
    StepName.PROBE: _probe,
    StepName.OPEN: _open,
}


def _overtaken(facts: Facts) -> Decision:
    return Decision(Verdict.FAIL, f"{facts.datacenter_id} became {facts.traffic_state.value} meanwhile")


def _busy(facts: Facts) -> str:
    """What still works in the datacenter, in words; empty when nothing does. Who is not heard from cannot say, and
    is excused: its requests are seen by the other side."""
    open_requests = sum(edge.open_requests for edge in facts.live_edges)
    noun = "request" if open_requests == 1 else "requests"
    parts = [f"{open_requests} open {noun} at the edges"] if open_requests else []
    parts += [f"{fleet.id} ({_work(fleet)})" for fleet in facts.live_fleets if not _is_idle(fleet)]
    return ", ".join(parts)


def _work(fleet: FleetFacts) -> str:
    match fleet.inflight:
        case None:
            return "unknown in flight"
        case 0:
            return "its agent has yet to answer"
        case inflight:
            return f"{inflight} in flight"


def _is_idle(fleet: FleetFacts) -> bool:
    """Whether its agent said so: by its answer to the order, then by its figures where it can read them."""
    if fleet.command in OPEN_COMMANDS:
        return False
    return fleet.inflight == 0 or (fleet.inflight is None and fleet.command is CommandStatus.SUCCEEDED)


def _unready(facts: Facts) -> str:
    """What keeps a datacenter from taking traffic, in words; empty when nothing does."""
    if not facts.fleets:
        return f"{facts.datacenter_id} has no fleet"
    return "; ".join(fleet.unready if fleet.lease_live else f"{fleet.id}'s agent is not heard from"
                     for fleet in facts.fleets if fleet.unready or not fleet.lease_live)


def _edge(edge: EdgeFacts) -> str:
    return f"{edge.id} (refused it: {edge.nack})" if edge.nack else edge.id
