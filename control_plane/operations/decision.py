"""What a step decided: a verdict in words, and effects that are applied in the transaction that read its facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from control_plane.contracts.agent_sync import CommandKind
from control_plane.contracts.deployment import Pool
from control_plane.operations.facts import Memory
from control_plane.topology.states import TrafficEvent


class Verdict(StrEnum):
    """What becomes of a step: it is done, looked at again, or it ends the operation. `back`: what the operation did is
    undone."""

    DONE = "done"
    WAIT = "wait"
    BACK = "back"
    FAIL = "fail"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Order:
    """A command to a fleet, given once an operation, kind, deployment and round. `deadline_s`: how long it may take; by
    default as long as the operation."""

    kind: CommandKind
    fleet_id: str
    deployment_id: str = ""
    round: int = 0
    deadline_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Specification:
    """What a deployment shall be from now on."""

    deployment_id: str
    engine: Mapping[str, Any]
    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """`moves` are applied to the operation's datacenter in this order, then `ramp_percent` and `evacuate` are set, if
    they are not null; `shares` are new shares by deployment; `undo` is added to what the operation remembers of before.
    All of it but `orders`, `memory` and `undo` makes a new snapshot."""

    verdict: Verdict
    detail: str
    memory: Memory = field(default_factory=Memory)
    moves: tuple[TrafficEvent, ...] = ()
    ramp_percent: int | None = None
    evacuate: bool | None = None
    shares: Mapping[str, int] = field(default_factory=dict)
    specifications: tuple[Specification, ...] = ()
    orders: tuple[Order, ...] = ()
    undo: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes_routing(self) -> bool:
        return bool(self.moves or self.shares or self.ramp_percent is not None or self.evacuate is not None)
