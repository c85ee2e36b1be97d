"""What the steps of a failover decide, and those that undo operations of datacenters."""

from dataclasses import replace
from typing import Any

import pytest

from control_plane.contracts.operations import FailoverMode
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Verdict
from control_plane.operations.facts import (
    Memory,
)
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent, move_traffic
from tests.unit.control_plane.operations.west import (
    EDGE,
    HELD,
    LATE,
    LONG_AGO,
    NOW_S,
    VIOLATION,
    drain,
    edge,
    failover,
    fleet,
    restore,
)


class TestEvacuate:
    def test_nothing_is_moved_where_nothing_is_open(self) -> None:
        decision = drain(StepName.EVACUATE)
        assert (decision.verdict, decision.evacuate) == (Verdict.DONE, None)

    def test_what_is_still_open_is_moved(self) -> None:
        decision = drain(StepName.EVACUATE, **edge(open_requests=2))
        assert (decision.verdict, decision.evacuate, decision.memory.stage_since_s) == (Verdict.WAIT, True, NOW_S)

    def test_it_waits_for_what_is_on_the_move(self) -> None:
        decision = drain(StepName.EVACUATE, evacuate=True, memory=HELD, **edge(open_requests=1))
        assert (decision.verdict, decision.detail) == (Verdict.WAIT, "1 open request on the move")

    def test_what_cannot_be_moved_may_finish_and_is_said(self) -> None:
        decision = drain(StepName.EVACUATE, evacuate=True, memory=LONG_AGO, **edge(open_requests=2))
        assert (decision.verdict, decision.detail) == (
            Verdict.DONE, "2 open requests could not be moved and may finish where they are")


class TestFailover:
    @pytest.mark.parametrize(("mode", "evacuate"), [(FailoverMode.HARD, True), (FailoverMode.GRACEFUL, False)])
    def test_one_change_takes_all_new_requests_away(self, mode: FailoverMode, evacuate: bool) -> None:
        decision = failover(StepName.FAIL, traffic_state=TrafficState.ACTIVE, mode=mode)
        assert (decision.moves, decision.evacuate) == ((TrafficEvent.FAIL,), evacuate)
        assert decision.undo == {"traffic_state": "active"}

    def test_it_does_nothing_the_second_time(self) -> None:
        decision = failover(StepName.FAIL, traffic_state=TrafficState.FAILED, violation=VIOLATION)
        assert (decision.verdict, decision.moves, decision.undo) == (Verdict.DONE, (), {})

    @pytest.mark.parametrize("step", [StepName.PREFLIGHT, StepName.FAIL])
    def test_a_broken_rule_refuses(self, step: StepName) -> None:
        decision = failover(step, traffic_state=TrafficState.ACTIVE, violation=VIOLATION)
        assert (decision.verdict, decision.moves) == (Verdict.REFUSE, ())

    def test_a_graceful_one_waits_for_open_requests_until_its_deadline(self) -> None:
        facts: dict[str, Any] = {"mode": FailoverMode.GRACEFUL, **edge(open_requests=1)}
        assert failover(StepName.AWAIT_IDLE, **facts).verdict is Verdict.WAIT
        assert failover(StepName.AWAIT_IDLE, **facts, **LATE).verdict is Verdict.DONE

    def test_a_hard_one_does_not(self) -> None:
        assert failover(StepName.AWAIT_IDLE, mode=FailoverMode.HARD, **edge(open_requests=1)).verdict is Verdict.DONE

    def test_what_failed_is_not_asked_whether_it_is_idle(self) -> None:
        decision = failover(StepName.VERIFY, memory=Memory(quiet_since_s=NOW_S - 60), edges=(
            replace(EDGE, seen_at_s=NOW_S),), **fleet(inflight=9))
        assert decision.verdict is Verdict.DONE

    @pytest.mark.parametrize(("before", "after"), [
        (TrafficState.ACTIVE, TrafficState.ACTIVE), (TrafficState.DRAINED, TrafficState.DRAINED)])
    def test_rolled_back_it_is_where_it_was(self, before: TrafficState, after: TrafficState) -> None:
        state = TrafficState.FAILED
        for event in failover(StepName.UNDO, traffic_state=state, undo={"traffic_state": before.value}).moves:
            state = move_traffic(state, event)
        assert state is after


class TestUndo:
    def test_a_drains_traffic_comes_back_at_once(self) -> None:
        decision = drain(StepName.UNDO, ramp_percent=20)
        assert (decision.verdict, decision.moves, decision.evacuate) == (Verdict.WAIT, (TrafficEvent.REOPEN,), False)

    def test_it_is_done_when_edges_know(self) -> None:
        assert drain(StepName.UNDO, traffic_state=TrafficState.ACTIVE).verdict is Verdict.DONE

    def test_a_restore_takes_its_traffic_away_first(self) -> None:
        decision = restore(StepName.UNDO, traffic_state=TrafficState.WARMING, ramp_percent=50)
        assert (decision.verdict, decision.moves, decision.ramp_percent) == (Verdict.WAIT, (), 0)

    def test_then_lets_what_came_with_it_finish(self) -> None:
        decision = restore(StepName.UNDO, traffic_state=TrafficState.WARMING, memory=HELD, **edge(open_requests=1))
        assert (decision.verdict, decision.detail) == (Verdict.WAIT, "waits for 1 open request at the edges")

    def test_then_is_drained(self) -> None:
        decision = restore(StepName.UNDO, traffic_state=TrafficState.WARMING, memory=HELD)
        assert (decision.verdict, decision.moves) == (Verdict.DONE, (TrafficEvent.ABANDON,))
