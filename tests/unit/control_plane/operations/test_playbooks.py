"""What the steps of a drain decide, and what holds of every step."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from control_plane.contracts.agent_sync import CommandKind
from control_plane.contracts.operations import OF_A_DATACENTER, OperationKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Order, Verdict
from control_plane.operations.facts import (
    EdgeFacts,
    Memory,
    Pace,
    QualityCounts,
)
from control_plane.operations.machine import CommandStatus
from control_plane.operations.playbooks import PLAYBOOKS, decide
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent, move_traffic
from tests.unit.control_plane.operations.west import (
    EDGE,
    FACTS,
    FLEET,
    HELD,
    LATE,
    LONG_AGO,
    NOW_S,
    VIOLATION,
    Decider,
    drain,
    edge,
    failover,
    fleet,
    restore,
)


class TestPreflight:
    def test_a_broken_rule_refuses_while_traffic_is_active(self) -> None:
        decision = drain(StepName.PREFLIGHT, traffic_state=TrafficState.ACTIVE, violation=VIOLATION)
        assert (decision.verdict, decision.detail) == (Verdict.REFUSE, "west is the last one")
        assert decision.moves == ()

    @pytest.mark.parametrize("kind", [OperationKind.DRAIN, OperationKind.RESTORE])
    def test_it_waits_until_the_last_change_of_traffic_was_long_enough_ago(self, kind: OperationKind) -> None:
        decision = decide(kind, StepName.PREFLIGHT, replace(FACTS, changed_at_s=NOW_S - 1.5))
        assert (decision.verdict, decision.detail) == (
            Verdict.WAIT, "waits 3.5 s: two changes of its traffic are at least 5 s apart")
        later = replace(FACTS, changed_at_s=NOW_S - 5)
        assert decide(kind, StepName.PREFLIGHT, later).verdict is Verdict.DONE

    def test_a_failover_does_not_wait_for_that(self) -> None:
        assert failover(StepName.PREFLIGHT, changed_at_s=NOW_S).verdict is Verdict.DONE


class TestRampDown:
    def test_it_begins_with_half_of_the_traffic_at_once(self) -> None:
        decision = drain(StepName.RAMP, traffic_state=TrafficState.ACTIVE)
        assert (decision.verdict, decision.moves, decision.ramp_percent) == (Verdict.WAIT, (TrafficEvent.DRAIN,), 50)
        assert decision.memory.stage_since_s == NOW_S

    @pytest.mark.parametrize(("now", "following"), [(50, 20), (20, 0), (35, 20)])
    def test_each_degree_follows_when_the_one_before_was_held(self, now: int, following: int) -> None:
        decision = drain(StepName.RAMP, ramp_percent=now, memory=HELD)
        assert (decision.moves, decision.ramp_percent) == ((), following)
        assert decision.verdict is (Verdict.WAIT if following else Verdict.DONE)

    def test_a_degree_is_held(self) -> None:
        decision = drain(StepName.RAMP, ramp_percent=50, memory=Memory(stage_since_s=NOW_S - 9))
        assert (decision.verdict, decision.ramp_percent) == (Verdict.WAIT, None)
        assert decision.detail == "50% of its traffic, held for 9 of 10 s"

    def test_the_deadline_ends_the_holding(self) -> None:
        decision = drain(StepName.RAMP, ramp_percent=50, memory=Memory(stage_since_s=NOW_S), **LATE)
        assert decision.ramp_percent == 20

    def test_what_another_drain_left_half_way_is_held_before_it_goes_on(self) -> None:
        decision = drain(StepName.RAMP, ramp_percent=50)
        assert (decision.verdict, decision.ramp_percent, decision.memory.stage_since_s) == (Verdict.WAIT, None, NOW_S)

    def test_a_datacenter_without_traffic_is_done(self) -> None:
        assert drain(StepName.RAMP, violation=VIOLATION).verdict is Verdict.DONE

    def test_it_waits_for_edges_before_the_next_degree(self) -> None:
        decision = drain(StepName.RAMP, ramp_percent=50, memory=HELD, **edge(acked=(1, 6)))
        assert (decision.verdict, decision.ramp_percent) == (Verdict.WAIT, None)
        assert "version 7 at edge-2" in decision.detail

    def test_an_edge_that_never_takes_a_degree_turns_it_back(self) -> None:
        decision = drain(StepName.RAMP, ramp_percent=50, memory=LONG_AGO, **edge(acked=(1, 6)))
        assert (decision.verdict, decision.detail) == (Verdict.BACK, "cannot go on without version 7 at edge-2")

    def test_force_goes_on_without_it(self) -> None:
        decision = drain(StepName.RAMP, ramp_percent=50, memory=LONG_AGO, forced=True, **edge(acked=(1, 6)))
        assert decision.ramp_percent == 20

    def test_a_rule_that_broke_before_it_began_refuses(self) -> None:
        decision = drain(StepName.RAMP, traffic_state=TrafficState.ACTIVE, violation=VIOLATION)
        assert (decision.verdict, decision.moves) == (Verdict.REFUSE, ())

    def test_a_rule_that_broke_half_way_turns_it_back(self) -> None:
        assert drain(StepName.RAMP, ramp_percent=50, violation=VIOLATION, memory=HELD).verdict is Verdict.BACK

    def test_it_fails_when_the_state_is_another_ones(self) -> None:
        assert drain(StepName.RAMP, traffic_state=TrafficState.FAILED).verdict is Verdict.FAIL


class TestErrorBudget:
    BEGUN = Memory(stage_since_s=NOW_S - 1, baseline={"east": [100, 0]})

    def test_failures_where_the_traffic_went_turn_it_back(self) -> None:
        decision = drain(StepName.RAMP, ramp_percent=50, memory=self.BEGUN,
                         quality={"east": QualityCounts(succeeded=119, failed=1)})
        assert (decision.verdict, decision.detail) == (
            Verdict.BACK, "the error budget of east burns: 1 of 20 requests failed, 5% are too many")

    def test_failures_from_before_the_degree_do_not_count(self) -> None:
        memory = replace(self.BEGUN, baseline={"east": [100, 50]})
        decision = drain(StepName.RAMP, ramp_percent=50, memory=memory, quality={"east": QualityCounts(200, 50)})
        assert decision.verdict is Verdict.WAIT

    def test_few_requests_say_nothing(self) -> None:
        decision = drain(StepName.RAMP, ramp_percent=50, memory=self.BEGUN, quality={"east": QualityCounts(109, 10)})
        assert decision.verdict is Verdict.WAIT

    def test_failures_of_the_datacenter_that_leaves_do_not_keep_it(self) -> None:
        decision = drain(StepName.RAMP, ramp_percent=50, memory=HELD, quality={"west": QualityCounts(0, 100)})
        assert decision.ramp_percent == 20

    def test_failures_of_the_datacenter_that_returns_do(self) -> None:
        decision = restore(StepName.RAMP, traffic_state=TrafficState.WARMING, ramp_percent=10, memory=HELD,
                           quality={"west": QualityCounts(0, 100)})
        assert decision.verdict is Verdict.BACK

    def test_each_degree_counts_anew(self) -> None:
        decision = drain(StepName.RAMP, ramp_percent=50, memory=HELD, quality={"east": QualityCounts(7, 0)})
        assert decision.memory.baseline == {"east": [7, 0]}


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

    def test_the_deadline_for_open_requests_is_not_the_edges(self) -> None:
        assert drain(StepName.AWAIT_EDGES, **edge(acked=(1, 6)), **LATE).verdict is Verdict.WAIT

    def test_a_live_edge_that_never_takes_it_turns_a_drain_back(self) -> None:
        decision = drain(StepName.AWAIT_EDGES, **edge(acked=(1, 6)), memory=LONG_AGO)
        assert (decision.verdict, decision.detail) == (Verdict.BACK, "cannot go on without version 7 at edge-2")

    @pytest.mark.parametrize("decide_one", [lambda: restore, lambda: failover])
    def test_one_that_would_do_no_harm_is_named_and_left(self, decide_one: Callable[[], Decider]) -> None:
        decision = decide_one()(StepName.AWAIT_EDGES, **edge(acked=(1, 6)), memory=LONG_AGO)
        assert (decision.verdict, decision.detail) == (Verdict.DONE, "goes on without version 7 at edge-2")

    def test_force_leaves_it_too(self) -> None:
        decision = drain(StepName.AWAIT_EDGES, **edge(acked=(1, 6)), memory=LONG_AGO, forced=True)
        assert decision.verdict is Verdict.DONE

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
        assert drain(StepName.VERIFY, memory=Memory(quiet_since_s=NOW_S - 60), edges=(
            replace(EDGE, seen_at_s=NOW_S - 1),)).verdict is Verdict.DONE

    def test_it_waits_for_a_report_that_is_younger_than_the_quiet(self) -> None:
        decision = drain(StepName.VERIFY, memory=Memory(quiet_since_s=NOW_S - 2), pace=Pace(verify_s=2), edges=(
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


OF_DATACENTERS = sorted(OF_A_DATACENTER)


@pytest.mark.parametrize("kind", OF_DATACENTERS)
def test_a_way_back_is_a_legal_move(kind: OperationKind) -> None:
    for state, events in PLAYBOOKS[kind].cancelling.items():
        after = state
        for event in events:
            after = move_traffic(after, event)
        assert after not in (TrafficState.DRAINING, TrafficState.WARMING)


@pytest.mark.parametrize(("kind", "step"), [
    (kind, step) for kind in OF_DATACENTERS for step in (*PLAYBOOKS[kind].steps, *PLAYBOOKS[kind].back)])
@pytest.mark.parametrize("state", TrafficState)
def test_a_step_never_asks_for_an_illegal_move(kind: OperationKind, step: StepName, state: TrafficState) -> None:
    for fleets, deadline_s, percent, memory in product(
            ((FLEET,), (replace(FLEET, lease_live=False),)), (NOW_S, NOW_S + 60), (0, 20, 100), (Memory(), HELD)):
        facts = replace(FACTS, traffic_state=state, fleets=fleets, deadline_s=deadline_s, ramp_percent=percent,
                        memory=memory, undo={"traffic_state": "active"})
        after = state
        for event in decide(kind, step, facts).moves:
            after = move_traffic(after, event)
