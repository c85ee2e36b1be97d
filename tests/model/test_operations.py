"""Drains, failovers and restores as a state machine: the real rules and steps over a small world in which everything
happens in any order. Edges route by the snapshot that they acknowledged, so a step that believes too early is seen at
once."""

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from control_plane.contracts.operations import OF_A_DATACENTER, FailoverMode, OperationKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Verdict
from control_plane.operations.facts import EdgeFacts, Facts, FleetFacts, Memory, Pace, QualityCounts
from control_plane.operations.machine import CommandStatus
from control_plane.operations.playbooks import PLAYBOOKS, decide
from control_plane.operations.safety import Place, Provider, Violation, check_away, check_leaving
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent, effective_weight, move_traffic

PLACES = ("ap", "eu", "us")
EDGES = ("edge-1", "edge-2")
PACE = Pace(verify_s=1.0, probe_observations=2, hold_s=0.5, flap_wait_s=0.5, ack_wait_s=20.0, evacuate_s=6.0)
DEADLINE_S = 15.0
WEIGHT = 100
AFTER_EDGES = list(PLAYBOOKS[OperationKind.DRAIN].steps).index(StepName.AWAIT_EDGES)
LEAVING = (OperationKind.DRAIN, OperationKind.FAILOVER)

SELDOM = st.sampled_from([True, *[False] * 5])
"""So that operations come to their later steps too."""

places = st.sampled_from(PLACES)
edges = st.sampled_from(EDGES)


@dataclass
class Edge:
    """An edge: the snapshot that it routes by, what it has open, and what it last told of both."""

    version: int = 0
    weights: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PLACES, WEIGHT))
    open: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    told_version: int = 0
    told_open: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    told_at_s: float = 0.0


@dataclass
class Operation:
    """An operation under way. Its deadline stands still while it is paused."""

    kind: OperationKind
    mode: FailoverMode
    deadline_s: float
    automatic: bool = False
    step: int = 0
    back: bool = False
    paused_at_s: float | None = None
    undo: dict[str, object] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    command: CommandStatus | None = None
    version: int = 0

    @property
    def steps(self) -> tuple[StepName, ...]:
        book = PLAYBOOKS[self.kind]
        return tuple(book.back if self.back else book.steps)


class Operations(RuleBasedStateMachine):
    """Three datacenters of one model, two edges, nobody forces anything."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.version = 0
        self.frozen = False
        self.slow: str | None = None
        self.traffic = dict.fromkeys(PLACES, TrafficState.ACTIVE)
        self.percent = dict.fromkeys(PLACES, 0)
        self.evacuates = dict.fromkeys(PLACES, False)
        self.changed_at_s = dict.fromkeys(PLACES, 0.0)
        self.observed_at_s = dict.fromkeys(PLACES, 0.0)
        self.edges = {name: Edge() for name in EDGES}
        self.failed = dict.fromkeys(PLACES, 0)
        self.under_way: dict[str, Operation] = {}
        self.gave_up: set[str] = set()  # what was open there still when its time was over

    # What operators and automation do

    @rule(place=places, kind=st.sampled_from(sorted(OF_A_DATACENTER)), mode=st.sampled_from(FailoverMode),
          automatic=st.booleans())
    def ask(self, place: str, kind: OperationKind, mode: FailoverMode, automatic: bool) -> None:
        if place in self.under_way or self.traffic[place] not in PLAYBOOKS[kind].starts_from:
            return
        if self._violation(place, kind) is None and not (automatic and self.frozen):
            self.under_way[place] = Operation(kind, mode, self.now_s + DEADLINE_S, automatic, version=self.version)

    @rule(means_it=SELDOM)
    def freeze_or_unfreeze(self, means_it: bool) -> None:
        self.frozen ^= means_it

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), means_it=SELDOM)
    def cancel(self, data: st.DataObject, means_it: bool) -> None:
        if not means_it:
            return
        place = data.draw(st.sampled_from(sorted(self.under_way)))
        if self.under_way[place].back:
            return
        operation = self.under_way.pop(place)
        self._move(place, PLAYBOOKS[operation.kind].cancelling.get(self.traffic[place], ()), evacuate=False)
        self.gave_up.add(place)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), means_it=SELDOM)
    def roll_back(self, data: st.DataObject, means_it: bool) -> None:
        place = data.draw(st.sampled_from(sorted(self.under_way)))
        if means_it and not self.under_way[place].back:
            self._turn_back(self.under_way[place])

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), means_it=SELDOM)
    def pause_or_resume(self, data: st.DataObject, means_it: bool) -> None:
        operation = self.under_way[data.draw(st.sampled_from(sorted(self.under_way)))]
        if operation.paused_at_s is not None:
            self._resume(operation)
        elif means_it and not operation.back:
            operation.paused_at_s = self.now_s

    # What the control plane does

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), looks=st.integers(1, 8))
    def look(self, data: st.DataObject, looks: int) -> None:
        """A replica looks at an operation; it may have been another one than the last time."""
        self._looks(data.draw(st.sampled_from(sorted(self.under_way))), looks)

    def _looks(self, place: str, looks: int) -> None:
        for _ in range(looks):
            operation = self.under_way.get(place)
            if operation is None or operation.paused_at_s is not None:
                return
            if operation.automatic and self.frozen and not operation.back:
                return
            self._look(place, operation)

    def _look(self, place: str, operation: Operation) -> None:
        decision = decide(operation.kind, operation.steps[operation.step], self._facts(place, operation))
        if decision.orders:
            operation.command = CommandStatus.ISSUED
        if decision.changes_routing:
            self._move(place, decision.moves, decision.ramp_percent, decision.evacuate)
            operation.version = self.version
        operation.undo |= decision.undo
        operation.memory = decision.memory
        if "could not be moved" in decision.detail or "may finish" in decision.detail or "deadline" in decision.detail:
            self.gave_up.add(place)
        if decision.verdict is Verdict.DONE:
            operation.step, operation.memory = operation.step + 1, Memory()
        if decision.verdict is Verdict.BACK and not operation.back:
            self._turn_back(operation)
        elif operation.step == len(operation.steps) or decision.verdict in (
                Verdict.FAIL, Verdict.REFUSE, Verdict.BACK):
            del self.under_way[place]

    def _turn_back(self, operation: Operation) -> None:
        self._resume(operation)
        operation.back, operation.step, operation.memory = True, 0, Memory()

    def _resume(self, operation: Operation) -> None:
        if operation.paused_at_s is not None:
            operation.deadline_s += self.now_s - operation.paused_at_s
            operation.paused_at_s = None

    def _move(self, place: str, moves: tuple[TrafficEvent, ...], percent: int | None = None,
              evacuate: bool | None = None) -> None:
        """As the topology does it: a state that is reached by degrees begins without traffic."""
        for event in moves:
            self.traffic[place] = move_traffic(self.traffic[place], event)
            self.percent[place] = 0
            if self.traffic[place] in (TrafficState.WARMING, TrafficState.ACTIVE):
                self.evacuates[place] = False
                self.gave_up.discard(place)
        if percent is not None:
            self.percent[place] = percent
        if evacuate is not None:
            self.evacuates[place] = evacuate
        self.changed_at_s[place] = self.now_s
        self.version += 1

    # What the rest of the world does

    @rule(taking=st.sets(edges), reporting=st.sets(edges), agents=st.sets(places))
    def syncs_arrive(self, taking: set[str], reporting: set[str], agents: set[str]) -> None:
        for name in sorted(taking):
            self._take(self.edges[name])
        for name in sorted(reporting):
            self._report(self.edges[name])
        for place in sorted(agents):
            self._observe(place)

    @rule(name=st.sampled_from([None, *EDGES]))
    def an_edge_takes_no_snapshots_for_a_while(self, name: str | None) -> None:
        self.slow = name

    @rule(seconds=st.integers(1, 4), looks=st.integers(1, 4))
    def seconds_pass_in_which_all_is_well(self, seconds: int, looks: int) -> None:
        """So that operations come to their ends."""
        for _ in range(seconds):
            self._second(looks)

    def _second(self, looks: int) -> None:
        self.syncs_arrive({name for name in EDGES if name != self.slow}, set(EDGES), set(PLACES))
        self.time_passes(1.0)
        for place in sorted(self.under_way):
            self._looks(place, looks)
        self.syncs_arrive(set(), set(EDGES), set(PLACES))

    def _take(self, edge: Edge) -> None:
        edge.version = self.version
        edge.weights = {place: effective_weight(state, WEIGHT, self.percent[place])
                        for place, state in self.traffic.items()}
        for place in PLACES:
            if self.evacuates[place] and any(edge.weights.values()):
                target = max(edge.weights, key=edge.weights.__getitem__)
                moved, edge.open[place] = edge.open[place], 0
                edge.open[target] += moved

    def _report(self, edge: Edge) -> None:
        edge.told_version, edge.told_open, edge.told_at_s = edge.version, dict(edge.open), self.now_s

    @rule(name=edges)
    def requests_begin(self, name: str) -> None:
        """One wherever this edge still gives new requests."""
        edge = self.edges[name]
        edge.open = {place: count + (edge.weights[place] > 0) for place, count in edge.open.items()}

    @rule(name=edges)
    def requests_end(self, name: str) -> None:
        self.edges[name].open = dict.fromkeys(PLACES, 0)

    @rule(place=places, means_it=SELDOM)
    def requests_fail(self, place: str, means_it: bool) -> None:
        """Enough of them to burn an error budget."""
        self.failed[place] += PACE.burn_requests * means_it

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
            if state is TrafficState.DRAINED and place not in self.under_way and place not in self.gave_up:
                assert self._inside(place) == 0, place

    @invariant()
    def what_waited_for_edges_is_known_to_every_edge(self) -> None:
        for place, one in self.under_way.items():
            if one.kind is OperationKind.DRAIN and not one.back and one.step > AFTER_EDGES:
                assert all(edge.weights[place] == 0 for edge in self.edges.values()), place

    @invariant()
    def traffic_that_moves_has_somebody_who_moves_it(self) -> None:
        for place, state in self.traffic.items():
            if state in (TrafficState.DRAINING, TrafficState.WARMING):
                assert place in self.under_way, place

    def _inside(self, place: str) -> int:
        return sum(edge.open[place] for edge in self.edges.values())

    @invariant()
    def no_more_than_all_of_the_traffic_is_asked_for(self) -> None:
        assert all(0 <= percent <= 100 for percent in self.percent.values())

    def _leaving(self) -> set[str]:
        return {place for place, one in self.under_way.items() if one.kind in LEAVING}

    def _providers(self) -> dict[str, list[Provider]]:
        return {"glm": [Provider(place, state is TrafficState.ACTIVE, place in self._leaving(), routable=True,
                                 observed=True) for place, state in self.traffic.items()]}

    def _violation(self, place: str, kind: OperationKind) -> Violation | None:
        if kind not in LEAVING:
            return None
        away = [Place(one, one, state is not TrafficState.ACTIVE or one in self._leaving())
                for one, state in self.traffic.items()]
        last = check_leaving(place, self._providers())
        return last or (check_away(place, away) if kind is OperationKind.DRAIN else None)

    def _facts(self, place: str, operation: Operation) -> Facts:
        fleet = FleetFacts(f"{place}-a", lease_live=True, observed_at_s=self.observed_at_s[place],
                           inflight=self._inside(place), unready="", command=operation.command)
        told = tuple(EdgeFacts(name, edge.told_at_s, (1, edge.told_version), None, edge.told_open[place])
                     for name, edge in self.edges.items())
        facts = Facts(
            now_s=self.now_s, deadline_s=operation.deadline_s, datacenter_id=place, traffic_state=self.traffic[place],
            snapshot=(1, operation.version), edges=told, fleets=(fleet,), violation=None, forced=False,
            memory=operation.memory, pace=PACE, ramp_percent=self.percent[place], evacuate=self.evacuates[place],
            changed_at_s=self.changed_at_s[place], undo=operation.undo,
            quality={one: QualityCounts(succeeded=0, failed=count) for one, count in self.failed.items()})
        if operation.kind is OperationKind.FAILOVER:
            facts = replace(facts, mode=operation.mode)
        return replace(facts, violation=self._violation(place, operation.kind))


TestOperations = Operations.TestCase
TestOperations.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
