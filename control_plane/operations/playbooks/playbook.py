"""What a kind of operation is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Decision
from control_plane.operations.facts import Facts, Pace
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent

Step = Callable[[Facts], Decision]
Moves = Mapping[TrafficState, tuple[TrafficEvent, ...]]


def _nothing_known(_: Pace) -> Mapping[StepName, float]:
    return {}


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step as an operation is planned with it. `detail` says what it is of, `baseline` is what it begins to remember:
    a step that is there more than once is told apart by them."""

    name: StepName
    detail: str = ""
    baseline: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Playbook:
    """The steps of a kind of operation, in order, and what each decides.

    Every step is re-entrant: it looks at the facts, not at what it did before, so any replica can go on with it after a
    crash in any place. `starts_from` are the traffic states in which it makes sense, some of them an earlier one's
    unfinished work; empty when it is not of a datacenter. `cancelling` is how a cancelled one's traffic goes back at
    once. `back` are the steps that undo it, run when a step says so or an operator does; without any it cannot be
    rolled back. `stages` are the steps of an operation of these deployments, and `back_stages` those that undo what it
    noted, where a step is there more than once. `reverts`: a cancelled one is rolled back. `needs_agents` are the steps
    that stand still while an agent of the operation is not heard from, and `expects` says how many seconds a step takes
    at the least.
    """

    steps: Mapping[StepName, Step]
    starts_from: frozenset[TrafficState] = frozenset()
    cancelling: Moves = field(default_factory=dict)
    back: Mapping[StepName, Step] = field(default_factory=dict)
    stages: Callable[[Sequence[str]], list[StepPlan]] | None = None
    back_stages: Callable[[Mapping[str, Any]], list[StepPlan]] | None = None
    reverts: bool = False
    needs_agents: frozenset[StepName] = frozenset()
    expects: Callable[[Pace], Mapping[StepName, float]] = _nothing_known

    def planned(self, deployments: Sequence[str]) -> list[StepPlan]:
        """The steps of an operation of these deployments."""
        return self.stages(deployments) if self.stages else [StepPlan(name) for name in self.steps]

    def planned_back(self, undo: Mapping[str, Any]) -> list[StepPlan]:
        """The steps that undo it."""
        return self.back_stages(undo) if self.back_stages else [StepPlan(name) for name in self.back]
