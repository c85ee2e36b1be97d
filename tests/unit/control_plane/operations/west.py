"""A datacenter, west, in which nothing is amiss: what its operations decide when one fact is another."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.deployment import Pool, PoolRole
from control_plane.contracts.operations import OperationKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Decision
from control_plane.operations.facts import (
    DeploymentFacts,
    EdgeFacts,
    Facts,
    FleetFacts,
    Memory,
    Pace,
)
from control_plane.operations.machine import CommandStatus
from control_plane.operations.playbooks import decide
from control_plane.operations.safety import Violation
from control_plane.operations.steps import StepName

NOW_S = 1_000.0
EDGE = EdgeFacts("edge-1", seen_at_s=NOW_S - 1, acked=(1, 7), nack=None, open_requests=0)
FLEET = FleetFacts("west-a", lease_live=True, observed_at_s=NOW_S - 1, inflight=0, unready="",
                   command=CommandStatus.SUCCEEDED)
FACTS = Facts(
    now_s=NOW_S, deadline_s=NOW_S + 60, datacenter_id="west", traffic_state=TrafficState.DRAINING, snapshot=(1, 7),
    edges=(EDGE,), fleets=(FLEET,), violation=None, forced=False, memory=Memory(), pace=Pace())
VIOLATION = Violation("last_datacenter", "west is the last one")
LATE: dict[str, Any] = {"deadline_s": NOW_S}
HELD, LONG_AGO = Memory(stage_since_s=NOW_S - 10), Memory(stage_since_s=NOW_S - 30)
SEEN = Memory(healthy=3, observed_at_s={"west-a": NOW_S - 1})
CELL = DeploymentFacts(
    id="west-a-glm", model_id="glm", fleet_id="west-a", datacenter_id="west", weight=0, share_permille=1_000,
    generation=1, observed_generation=1, phase=DeploymentPhase.READY, load=0, lease_live=True, unready="", engine={},
    pools=(Pool(role=PoolRole.DECODE, replicas=1),))
Decider = Callable[..., Decision]


def drain(step: StepName, **facts: object) -> Decision:
    return decide(OperationKind.DRAIN, step, replace(FACTS, **facts))  # type: ignore[arg-type]


def restore(step: StepName, **facts: object) -> Decision:
    return decide(OperationKind.RESTORE, step, replace(FACTS, **facts))  # type: ignore[arg-type]


def failover(step: StepName, **facts: object) -> Decision:
    return decide(OperationKind.FAILOVER, step, replace(FACTS, **facts))  # type: ignore[arg-type]


def edge(**facts: object) -> dict[str, tuple[EdgeFacts, ...]]:
    return {"edges": (EDGE, replace(EDGE, id="edge-2", **facts))}  # type: ignore[arg-type]


def fleet(**facts: object) -> dict[str, tuple[FleetFacts, ...]]:
    return {"fleets": (replace(FLEET, **facts),)}  # type: ignore[arg-type]
