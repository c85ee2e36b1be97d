"""Drains and restores as a state machine: the real rules and steps over a small world in which everything happens in
any order. Edges route by the snapshot that they acknowledged, so a step that believes too early is seen at once."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from control_plane.contracts.operations import OperationKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Verdict
from control_plane.operations.facts import EdgeFacts, Facts, FleetFacts, Memory, Pace
from control_plane.operations.machine import CommandStatus
from control_plane.operations.playbooks import PLAYBOOKS, decide
from control_plane.operations.safety import Provider, check_leaving
from control_plane.topology.states import move_traffic

PLACES = ("ap", "eu", "us")
EDGES = ("edge-1", "edge-2")
PACE = Pace(verify_s=2.0, probe_observations=2)
FAR_S = 1e9

places = st.sampled_from(PLACES)
edges = st.sampled_from(EDGES)


@dataclass
class Edge:
    """An edge: the snapshot that it routes by, what it has open, and what it last told of both."""

    version: int = 0
    weights: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 1))
    open: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    told_version: int = 0
    told_open: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    told_at_s: float = 0.0


@dataclass
class Operation:
    """An operation under way."""

    kind: OperationKind
    step: int = 0
    memory: Memory = field(default_factory=Memory)
    command: CommandStatus | None = None
    version: int = 0


class Operations(RuleBasedStateMachine):
    """Three datacenters of one model, two edges, nobody forces anything and no deadline passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.version = 0
        self.traffic = dict.fromkeys(PLACES, TrafficState.ACTIVE)
        self.observed_at_s = dict.fromkeys(PLACES, 0.0)
        self.edges = {name: Edge() for name in EDGES}
        self.under_way: dict[str, Operation] = {}

    # What operators do

    @rule(place=places, kind=st.sampled_from([OperationKind.DRAIN, OperationKind.RESTORE]))
    def ask(self, place: str, kind: OperationKind) -> None:
        if place in self.under_way or self.traffic[place] not in PLAYBOOKS[kind].starts_from:
            return
        if kind is OperationKind.RESTORE or check_leaving(place, self._providers()) is None:
            self.under_way[place] = Operation(kind, version=self.version)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), means_it=st.sampled_from([True, False, False, False]))
    def cancel(self, data: st.DataObject, means_it: bool) -> None:
        """Seldom, so that operations come to their later steps too."""
        if not means_it:
            return
        place = data.draw(st.sampled_from(sorted(self.under_way)))
        operation = self.under_way.pop(place)
        event = PLAYBOOKS[operation.kind].cancelling.get(self.traffic[place])
        if event is not None:
            self.traffic[place] = move_traffic(self.traffic[place], event)
            self.version += 1

    # What the control plane does

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), looks=st.integers(1, 8))
    def look(self, data: st.DataObject, looks: int) -> None:
        """A replica looks at an operation; it may have been another one than the last time."""
        place = data.draw(st.sampled_from(sorted(self.under_way)))
        for _ in range(looks):
            if place in self.under_way:
                self._look(place, self.under_way[place])

    def _look(self, place: str, operation: Operation) -> None:
        steps = tuple(PLAYBOOKS[operation.kind].steps)
        decision = decide(operation.kind, steps[operation.step], self._facts(place, operation))
        if decision.orders:
            operation.command = CommandStatus.ISSUED
        for event in decision.moves:
            self.traffic[place] = move_traffic(self.traffic[place], event)
            self.version += 1
            operation.version = self.version
        operation.memory = decision.memory
        if decision.verdict is Verdict.DONE:
            operation.step, operation.memory = operation.step + 1, Memory()
        if operation.step == len(steps) or decision.verdict in (Verdict.FAIL, Verdict.REFUSE):
            del self.under_way[place]

    # What the rest of the world does

    @rule(taking=st.sets(edges), reporting=st.sets(edges), agents=st.sets(places))
    def syncs_arrive(self, taking: set[str], reporting: set[str], agents: set[str]) -> None:
        for name in sorted(taking):
            self._take(self.edges[name])
        for name in sorted(reporting):
            self._report(self.edges[name])
        for place in sorted(agents):
            self._observe(place)

    def _take(self, edge: Edge) -> None:
        edge.version = self.version
        edge.weights = {place: int(state is TrafficState.ACTIVE) for place, state in self.traffic.items()}

    def _report(self, edge: Edge) -> None:
        edge.told_version, edge.told_open, edge.told_at_s = edge.version, dict(edge.open), self.now_s

    @rule(name=edges)
    def requests_begin(self, name: str) -> None:
        """One wherever this edge still gives new requests."""
        edge = self.edges[name]
        edge.open = {place: count + edge.weights[place] for place, count in edge.open.items()}

    @rule(name=edges)
    def requests_end(self, name: str) -> None:
        self.edges[name].open = dict.fromkeys(PLACES, 0)

    def _observe(self, place: str) -> None:
        self.observed_at_s[place] = self.now_s
        operation = self.under_way.get(place)
        if operation is not None and operation.command is not None and self._inside(place) == 0:
            operation.command = CommandStatus.SUCCEEDED

    @rule(seconds=st.floats(0.1, 3.0))
    def time_passes(self, seconds: float) -> None:
        """Edges stay live: whoever is silent for long is another test's matter."""
        self.now_s += seconds
        for edge in self.edges.values():
            edge.told_at_s = max(edge.told_at_s, self.now_s - 10)

    # What always holds

    @invariant()
    def a_datacenter_is_always_active(self) -> None:
        assert TrafficState.ACTIVE in self.traffic.values()

    @invariant()
    def nothing_is_open_where_it_is_drained(self) -> None:
        for place, state in self.traffic.items():
            if state is TrafficState.DRAINED and place not in self.under_way:
                assert self._inside(place) == 0, place

    @invariant()
    def traffic_that_moves_has_somebody_who_moves_it(self) -> None:
        for place, state in self.traffic.items():
            if state in (TrafficState.DRAINING, TrafficState.WARMING):
                assert place in self.under_way, place

    def _inside(self, place: str) -> int:
        return sum(edge.open[place] for edge in self.edges.values())

    def _providers(self) -> dict[str, list[Provider]]:
        leaving = {place for place, one in self.under_way.items() if one.kind is OperationKind.DRAIN}
        return {"glm": [Provider(place, state is TrafficState.ACTIVE, place in leaving, routable=True, observed=True)
                        for place, state in self.traffic.items()]}

    def _facts(self, place: str, operation: Operation) -> Facts:
        fleet = FleetFacts(f"{place}-a", lease_live=True, observed_at_s=self.observed_at_s[place],
                           inflight=self._inside(place), unready="", command=operation.command)
        told = tuple(EdgeFacts(name, edge.told_at_s, (1, edge.told_version), None, edge.told_open[place])
                     for name, edge in self.edges.items())
        return Facts(
            now_s=self.now_s, deadline_s=FAR_S, datacenter_id=place, traffic_state=self.traffic[place],
            snapshot=(1, operation.version), edges=told, fleets=(fleet,),
            violation=check_leaving(place, self._providers()), forced=False, memory=operation.memory, pace=PACE)


TestOperations = Operations.TestCase
TestOperations.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
