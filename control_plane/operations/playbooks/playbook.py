"""What a kind of operation is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Decision
from control_plane.operations.facts import Facts
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent

Step = Callable[[Facts], Decision]


@dataclass(frozen=True, slots=True)
class Playbook:
    """The steps of a kind of operation, in order, and what each decides.

    Every step is re-entrant: it looks at the facts, not at what it did before, so any replica can go on with it after a
    crash in any place. `starts_from` are the traffic states in which it makes sense, some of them an earlier one's
    unfinished work; empty when it is not of a datacenter. `cancelling` is how a cancelled one's traffic goes back at
    once. `back` are the steps that undo it, run when a step says so or an operator does; without any it cannot be
    rolled back.
    """

    steps: Mapping[StepName, Step]
    starts_from: frozenset[TrafficState] = frozenset()
    cancelling: Mapping[TrafficState, TrafficEvent] = field(default_factory=dict)
    back: Mapping[StepName, Step] = field(default_factory=dict)
