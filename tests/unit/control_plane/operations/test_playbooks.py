"""What each step decides."""

from dataclasses import replace

import pytest

from control_plane.contracts.agent_sync import CommandKind
from control_plane.contracts.operations import OperationKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Decision, Order, Verdict
from control_plane.operations.facts import EdgeFacts, Facts, FleetFacts, Memory, Pace
from control_plane.operations.machine import CommandStatus
from control_plane.operations.playbooks import PLAYBOOKS, decide
from control_plane.operations.safety import Violation
from control_plane.operations.steps import StepName
from control_plane.topology.states import TRAFFIC_MOVES, TrafficEvent, move_traffic

NOW_S = 1_000.0
EDGE = EdgeFacts("edge-1", seen_at_s=NOW_S - 1, acked=(1, 7), nack=None, open_requests=0)
FLEET = FleetFacts("west-a", lease_live=True, observed_at_s=NOW_S - 1, inflight=0, unready="",
                   command=CommandStatus.SUCCEEDED)
FACTS = Facts(
    now_s=NOW_S, deadline_s=NOW_S + 60, datacenter_id="west", traffic_state=TrafficState.DRAINING, snapshot=(1, 7),
    edges=(EDGE,), fleets=(FLEET,), violation=None, forced=False, memory=Memory(), pace=Pace())
VIOLATION = Violation("last_datacenter", "west is the last one")
LATE = {"deadline_s": NOW_S}


def drain(step: StepName, **facts: object) -> Decision:
    return decide(OperationKind.DRAIN, step, replace(FACTS, **facts))  # type: ignore[arg-type]


def restore(step: StepName, **facts: object) -> Decision:
    return decide(OperationKind.RESTORE, step, replace(FACTS, **facts))  # type: ignore[arg-type]


def edge(**facts: object) -> dict[str, tuple[EdgeFacts, ...]]:
    return {"edges": (EDGE, replace(EDGE, id="edge-2", **facts))}  # type: ignore[arg-type]


def fleet(**facts: object) -> dict[str, tuple[FleetFacts, ...]]:
    return {"fleets": (replace(FLEET, **facts),)}  # type: ignore[arg-type]


class TestPreflightAndClose:
    @pytest.mark.parametrize("step", [StepName.PREFLIGHT, StepName.CLOSE])
    def test_a_broken_rule_refuses_while_traffic_is_active(self, step: StepName) -> None:
        decision = drain(step, traffic_state=TrafficState.ACTIVE, violation=VIOLATION)
        assert (decision.verdict, decision.detail) == (Verdict.REFUSE, "west is the last one")
        assert decision.moves == ()

    def test_close_takes_the_traffic_away(self) -> None:
        decision = drain(StepName.CLOSE, traffic_state=TrafficState.ACTIVE)
        assert (decision.verdict, decision.moves) == (Verdict.DONE, (TrafficEvent.DRAIN,))

    def test_close_does_nothing_the_second_time(self) -> None:
        assert drain(StepName.CLOSE, violation=VIOLATION).moves == ()

    def test_close_fails_when_the_state_is_another_ones(self) -> None:
        assert drain(StepName.CLOSE, traffic_state=TrafficState.FAILED).verdict is Verdict.FAIL


class TestAwaitEdges:
    @pytest.mark.parametrize(("edges", "words"), [
        ((EDGE,), "1 edge routes by version 7"),
        ((EDGE, replace(EDGE, id="edge-2")), "2 edges route by version 7"),
        ((EDGE, replace(EDGE, id="edge-2", seen_at_s=0.0)),
         "1 edge routes by version 7; 1 not heard from is excused"),
    ])
    def test_it_says_who_routes_in_right_words(self, edges: tuple[EdgeFacts, ...], words: str) -> None:
        assert drain(StepName.AWAIT_EDGES, edges=edges).detail == words

    def test_it_is_done_when_every_edge_has_the_version(self) -> None:
        assert drain(StepName.AWAIT_EDGES).verdict is Verdict.DONE

    def test_a_newer_version_will_do(self) -> None:
        assert drain(StepName.AWAIT_EDGES, **edge(acked=(1, 9))).verdict is Verdict.DONE

    def test_a_higher_lineage_will_do(self) -> None:
        assert drain(StepName.AWAIT_EDGES, **edge(acked=(2, 1))).verdict is Verdict.DONE

    def test_it_waits_for_an_edge_that_is_behind_and_names_it(self) -> None:
        decision = drain(StepName.AWAIT_EDGES, **edge(acked=(1, 6)))
        assert decision.verdict is Verdict.WAIT
        assert "edge-2" in decision.detail

    def test_it_says_what_an_edge_refused_it_for(self) -> None:
        assert "refused it: poisoned" in drain(StepName.AWAIT_EDGES, **edge(acked=(1, 6), nack="poisoned")).detail

    def test_an_edge_that_is_not_heard_from_is_excused(self) -> None:
        decision = drain(StepName.AWAIT_EDGES, **edge(acked=(1, 6), seen_at_s=NOW_S - 15))
        assert decision.verdict is Verdict.DONE
        assert "1 not heard from" in decision.detail

    def test_an_edge_is_waited_for_until_it_is_silent_for_that_long(self) -> None:
        decision = drain(StepName.AWAIT_EDGES, **edge(acked=(1, 6), seen_at_s=NOW_S - 14.9))
        assert decision.verdict is Verdict.WAIT

    def test_a_live_edge_that_never_takes_it_fails_the_operation_at_the_deadline(self) -> None:
        decision = drain(StepName.AWAIT_EDGES, **edge(acked=(1, 6)), **LATE)
        assert decision.verdict is Verdict.FAIL
        assert decision.moves == ()

    def test_without_edges_there_is_nobody_to_wait_for(self) -> None:
        assert drain(StepName.AWAIT_EDGES, edges=()).verdict is Verdict.DONE


class TestAwaitIdle:
    def test_it_orders_the_fleets_to_drain_first(self) -> None:
        decision = drain(StepName.AWAIT_IDLE, **fleet(command=None))
        assert (decision.verdict, decision.orders) == (Verdict.WAIT, (Order(CommandKind.DRAIN, "west-a"),))

    def test_it_orders_once(self) -> None:
        assert not drain(StepName.AWAIT_IDLE, **fleet(command=CommandStatus.ISSUED)).orders

    def test_it_is_done_when_edges_and_fleets_are_idle(self) -> None:
        assert drain(StepName.AWAIT_IDLE).verdict is Verdict.DONE

    def test_it_waits_for_open_requests_of_a_live_edge(self) -> None:
        decision = drain(StepName.AWAIT_IDLE, **edge(open_requests=3))
        assert decision.verdict is Verdict.WAIT
        assert "3 open requests" in decision.detail

    def test_requests_of_an_edge_that_is_not_heard_from_are_excused(self) -> None:
        assert drain(StepName.AWAIT_IDLE, **edge(open_requests=3, seen_at_s=0.0)).verdict is Verdict.DONE

    @pytest.mark.parametrize("command", [CommandStatus.ISSUED, CommandStatus.ACCEPTED])
    def test_it_waits_for_the_agents_word(self, command: CommandStatus) -> None:
        assert drain(StepName.AWAIT_IDLE, **fleet(command=command)).verdict is Verdict.WAIT

    def test_an_agent_that_is_waited_for_is_not_said_to_have_nothing_in_flight(self) -> None:
        decision = drain(StepName.AWAIT_IDLE, **fleet(command=CommandStatus.ISSUED, inflight=0))
        assert decision.detail.endswith("(its agent has yet to answer)")

    @pytest.mark.parametrize("command", [CommandStatus.FAILED, CommandStatus.REJECTED, CommandStatus.EXPIRED])
    def test_an_order_that_failed_is_made_up_for_by_the_figures(self, command: CommandStatus) -> None:
        assert drain(StepName.AWAIT_IDLE, **fleet(command=command, inflight=0)).verdict is Verdict.DONE
        assert drain(StepName.AWAIT_IDLE, **fleet(command=command, inflight=2)).verdict is Verdict.WAIT

    def test_figures_that_could_not_be_read_are_not_zero(self) -> None:
        decision = drain(StepName.AWAIT_IDLE, **fleet(command=CommandStatus.FAILED, inflight=None))
        assert decision.verdict is Verdict.WAIT
        assert "unknown in flight" in decision.detail

    def test_a_fleet_without_an_agent_is_excused_and_named(self) -> None:
        decision = drain(StepName.AWAIT_IDLE, **fleet(command=CommandStatus.ISSUED, lease_live=False, inflight=9))
        assert decision.verdict is Verdict.DONE
        assert "west-a not heard" in decision.detail

    def test_at_the_deadline_it_says_what_was_left_and_goes_on(self) -> None:
        decision = drain(StepName.AWAIT_IDLE, **edge(open_requests=3), **LATE)
        assert decision.verdict is Verdict.DONE
        assert "3 open requests" in decision.detail


class TestVerify:
    def test_it_begins_to_count_when_it_is_quiet(self) -> None:
        decision = drain(StepName.VERIFY)
        assert decision.verdict is Verdict.WAIT
        assert decision.memory.quiet_since_s == NOW_S

    def test_it_is_done_when_it_was_quiet_for_long_enough(self) -> None:
        assert drain(StepName.VERIFY, memory=Memory(quiet_since_s=NOW_S - 2), edges=(
            replace(EDGE, seen_at_s=NOW_S - 1),)).verdict is Verdict.DONE

    def test_it_waits_for_a_report_that_is_younger_than_the_quiet(self) -> None:
        decision = drain(StepName.VERIFY, memory=Memory(quiet_since_s=NOW_S - 2), edges=(
            replace(EDGE, seen_at_s=NOW_S - 3),))
        assert decision.verdict is Verdict.WAIT

    def test_a_new_request_begins_the_count_again(self) -> None:
        decision = drain(StepName.VERIFY, memory=Memory(quiet_since_s=NOW_S - 9), **edge(open_requests=1))
        assert (decision.verdict, decision.memory.quiet_since_s) == (Verdict.WAIT, None)

    def test_work_inside_the_engine_after_the_agents_word_counts_too(self) -> None:
        assert drain(StepName.VERIFY, **fleet(inflight=1)).detail.startswith("busy again")

    def test_what_is_still_busy_after_the_deadline_does_not_hold_it(self) -> None:
        decision = drain(StepName.VERIFY, **edge(open_requests=1), **LATE)
        assert (decision.verdict, decision.detail) == (
            Verdict.DONE, "not idle at the deadline: 1 open request at the edges")


class TestSettle:
    def test_it_ends_the_drain(self) -> None:
        assert drain(StepName.SETTLE).moves == (TrafficEvent.SETTLE,)

    def test_it_does_nothing_the_second_time(self) -> None:
        assert drain(StepName.SETTLE, traffic_state=TrafficState.DRAINED).moves == ()


class TestRestore:
    def test_preflight_waits_for_deployments_and_names_them(self) -> None:
        decision = restore(StepName.PREFLIGHT, **fleet(unready="west-a-glm is provisioning"))
        assert decision.verdict is Verdict.WAIT
        assert "west-a-glm is provisioning" in decision.detail

    def test_preflight_waits_for_agents(self) -> None:
        assert "agent is not heard from" in restore(StepName.PREFLIGHT, **fleet(lease_live=False)).detail

    def test_preflight_fails_at_the_deadline_and_leaves_traffic_away(self) -> None:
        decision = restore(StepName.PREFLIGHT, **fleet(lease_live=False), **LATE)
        assert (decision.verdict, decision.moves) == (Verdict.FAIL, ())

    def test_a_datacenter_without_a_fleet_is_not_ready(self) -> None:
        assert "has no fleet" in restore(StepName.PREFLIGHT, fleets=()).detail

    @pytest.mark.parametrize("state", sorted(PLAYBOOKS[OperationKind.RESTORE].starts_from))
    def test_warm_leads_to_warming_from_every_state_that_it_starts_from(self, state: TrafficState) -> None:
        after = state
        for event in restore(StepName.WARM, traffic_state=state).moves:
            after = move_traffic(after, event)
        assert after is TrafficState.WARMING

    def test_warm_fails_when_traffic_is_active_already(self) -> None:
        assert restore(StepName.WARM, traffic_state=TrafficState.ACTIVE).verdict is Verdict.FAIL

    def test_probe_counts_each_new_report_once(self) -> None:
        first = restore(StepName.PROBE)
        again = restore(StepName.PROBE, memory=first.memory)
        assert (first.memory.healthy, again.memory.healthy) == (1, 1)

    def test_probe_is_done_after_three_reports(self) -> None:
        memory = Memory()
        for number in range(2):
            decision = restore(StepName.PROBE, memory=memory, **fleet(observed_at_s=NOW_S + number))
            assert decision.verdict is Verdict.WAIT
            memory = decision.memory
        assert restore(StepName.PROBE, memory=memory, **fleet(observed_at_s=NOW_S + 3)).verdict is Verdict.DONE

    def test_probe_begins_again_after_an_unhealthy_report(self) -> None:
        decision = restore(StepName.PROBE, memory=Memory(healthy=2), **fleet(unready="west-a-glm is degraded"))
        assert (decision.verdict, decision.memory) == (Verdict.WAIT, Memory())

    def test_probe_gives_up_at_the_deadline_and_lets_it_rest_drained(self) -> None:
        decision = restore(StepName.PROBE, traffic_state=TrafficState.WARMING, **fleet(lease_live=False), **LATE)
        assert (decision.verdict, decision.moves) == (Verdict.FAIL, (TrafficEvent.ABANDON,))

    def test_open_brings_the_traffic_back(self) -> None:
        assert restore(StepName.OPEN, traffic_state=TrafficState.WARMING).moves == (TrafficEvent.OPEN,)

    def test_open_does_nothing_the_second_time(self) -> None:
        assert restore(StepName.OPEN, traffic_state=TrafficState.ACTIVE).moves == ()

    def test_open_fails_when_the_state_is_another_ones(self) -> None:
        assert restore(StepName.OPEN, traffic_state=TrafficState.FAILED).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", PLAYBOOKS)
def test_a_way_back_is_a_legal_move(kind: OperationKind) -> None:
    assert {(state, event) for state, event in PLAYBOOKS[kind].cancelling.items()} <= set(TRAFFIC_MOVES)


@pytest.mark.parametrize(("kind", "step"), [(kind, step) for kind, book in PLAYBOOKS.items() for step in book.steps])
@pytest.mark.parametrize("state", TrafficState)
def test_a_step_never_asks_for_an_illegal_move(kind: OperationKind, step: StepName, state: TrafficState) -> None:
    for fleets in ((FLEET,), (replace(FLEET, lease_live=False),)):
        for deadline_s in (NOW_S, NOW_S + 60):
            facts = replace(FACTS, traffic_state=state, fleets=fleets, deadline_s=deadline_s)
            after = state
            for event in decide(kind, step, facts).moves:
                after = move_traffic(after, event)
