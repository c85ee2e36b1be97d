"""What steps decide by: plain facts, read in one transaction. Times are Unix seconds of the database's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.deployment import Pool
from control_plane.contracts.operations import FailoverMode, RolloutOrder, ShiftOrder
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.machine import CommandStatus
from control_plane.operations.safety import Violation


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things are looked at before they are believed. A drain takes a datacenter's traffic through `ramp_down`
    (percent), a restore through `ramp_up`, each held for `hold_s`; two operations begin to change one datacenter's
    traffic at least `flap_wait_s` apart. A live edge has `ack_wait_s` to take a snapshot, and edges have `evacuate_s`
    to move streams. Traffic is turned back when `burn_percent` of at least `burn_requests` fail where it went.
    `failover_after_s` is how long a quorum of edges must have said the same."""

    verify_s: float = 60.0
    probe_observations: int = 3
    edge_excused_after_s: float = 15.0
    hold_s: float = 10.0
    ramp_down: tuple[int, ...] = (50, 20, 0)
    ramp_up: tuple[int, ...] = (10, 50, 100)
    flap_wait_s: float = 5.0
    ack_wait_s: float = 30.0
    evacuate_s: float = 30.0
    burn_percent: float = 5.0
    burn_requests: int = 20
    watch_s: float = 60.0
    failover_after_s: float = 30.0


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
    deployments are not ready at their generation, empty if all are; `command` is this operation's order to drain it."""

    id: str
    lease_live: bool
    observed_at_s: float | None
    inflight: int | None
    unready: str
    command: CommandStatus | None


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """This operation's newest order to probe a deployment: its round, and what became of it."""

    round: int
    status: CommandStatus
    result: str


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """A deployment that the operation is of. `weight` is its datacenter's effective one; `load` counts requests inside
    the engine and `queued` those of them that wait, null when they could not be read; `unready` is empty when it is
    ready at its generation; `message` is what its agent says is wrong."""

    id: str
    model_id: str
    fleet_id: str
    datacenter_id: str
    weight: int
    share_permille: int
    generation: int
    observed_generation: int | None
    phase: DeploymentPhase | None
    load: int | None
    lease_live: bool
    unready: str
    engine: Mapping[str, Any]
    pools: tuple[Pool, ...]
    probe: ProbeFacts | None = None
    queued: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class QualityCounts:
    """What edges counted for the operation's models in one datacenter since the operation began: sums that only grow.
    Histograms are by the bounds in `contracts/evidence.py`."""

    succeeded: int = 0
    failed: int = 0
    ttft: tuple[int, ...] = ()
    itl: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """What a step remembers between two looks; stored with it. `stage` counts what it went through, `stage_since_s` is
    when the present one began, and `baseline` is free for what a kind of operation compares with."""

    quiet_since_s: float | None = None
    healthy: int = 0
    observed_at_s: dict[str, float] = field(default_factory=dict)
    stage: int = 0
    stage_since_s: float | None = None
    baseline: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a step decides by. `datacenter_id`, `traffic_state` and what follows them are null or empty when the
    operation is not of a datacenter; `mode` is a failover's, `order` a shift's or rollout's, `quality` is by
    datacenter. `snapshot` is the newest that this operation made, or else that edges can have; `violation` is the
    safety rule that the operation would break, null when it was forced, but for a rollout's; `undo` is what was there
    before it."""

    now_s: float
    deadline_s: float
    snapshot: tuple[int, int]
    edges: tuple[EdgeFacts, ...]
    violation: Violation | None
    forced: bool
    memory: Memory
    pace: Pace
    datacenter_id: str = ""
    traffic_state: TrafficState | None = None
    ramp_percent: int = 0
    evacuate: bool = False
    changed_at_s: float = 0.0
    mode: FailoverMode | None = None
    fleets: tuple[FleetFacts, ...] = ()
    deployments: tuple[DeploymentFacts, ...] = ()
    order: ShiftOrder | RolloutOrder | None = None
    quality: Mapping[str, QualityCounts] = field(default_factory=dict)
    undo: Mapping[str, Any] = field(default_factory=dict)

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
