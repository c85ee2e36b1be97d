"""The tables of traffic states and deployment phases, every state against every event."""

from itertools import product

import pytest

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.snapshot import TrafficState
from control_plane.topology.states import (
    PHASE_MOVES,
    ROUTABLE,
    TRAFFIC_MOVES,
    IllegalTransition,
    TrafficEvent,
    effective_weight,
    move_phase,
    move_traffic,
    observe_phase,
)

TRAFFIC = list(product(TrafficState, TrafficEvent))
PHASES = list(product(DeploymentPhase, DeploymentPhase))

LEGAL_TRAFFIC = {
    "active drain draining", "active fail failed",
    "draining settle drained", "draining reopen active", "draining warm warming", "draining fail failed",
    "drained warm warming", "drained fail failed",
    "warming open active", "warming abandon drained", "warming fail failed",
    "failed recover recovering", "recovering warm warming", "recovering fail failed",
}
ILLEGAL_PHASES = {
    "retiring ready", "retiring degraded", "gone ready", "gone degraded", "gone retiring",
}


@pytest.mark.parametrize(("state", "event"), TRAFFIC)
def test_traffic_moves_as_the_table_says_or_not_at_all(state: TrafficState, event: TrafficEvent) -> None:
    after = [words.split()[2] for words in LEGAL_TRAFFIC if words.split()[:2] == [state.value, event.value]]
    if after:
        assert move_traffic(state, event).value == after[0]
    else:
        with pytest.raises(IllegalTransition, match=f"'{event.value}' is no move from '{state.value}'"):
            move_traffic(state, event)


def test_the_traffic_table_holds_nothing_else() -> None:
    assert len(TRAFFIC_MOVES) == len(LEGAL_TRAFFIC)


@pytest.mark.parametrize(("before", "seen"), PHASES)
def test_phases_move_as_the_table_says_or_not_at_all(before: DeploymentPhase, seen: DeploymentPhase) -> None:
    if f"{before.value} {seen.value}" in ILLEGAL_PHASES:
        with pytest.raises(IllegalTransition):
            move_phase(before, seen)
    else:
        assert move_phase(before, seen) is seen


def test_every_phase_has_a_row() -> None:
    assert set(PHASE_MOVES) == set(DeploymentPhase)


@pytest.mark.parametrize("state", TrafficState)
def test_every_traffic_state_leads_back_to_active(state: TrafficState) -> None:
    reached, todo = set(), [state]
    while todo:
        current = todo.pop()
        reached.add(current)
        todo += [after for (before, _), after in TRAFFIC_MOVES.items() if before is current and after not in reached]
    assert TrafficState.ACTIVE in reached


def test_only_open_and_reopen_lead_into_active() -> None:
    events = {event for (_, event), after in TRAFFIC_MOVES.items() if after is TrafficState.ACTIVE}
    assert events == {TrafficEvent.OPEN, TrafficEvent.REOPEN}


@pytest.mark.parametrize(("before", "seen"), PHASES)
def test_a_report_is_believed_at_the_latest_when_it_is_repeated(before: DeploymentPhase, seen: DeploymentPhase) -> None:
    assert observe_phase(observe_phase(before, seen), seen) is seen


@pytest.mark.parametrize("before", [DeploymentPhase.RETIRING, DeploymentPhase.GONE])
@pytest.mark.parametrize("seen", sorted(ROUTABLE))
def test_what_was_ending_is_not_routable_at_its_first_report(before: DeploymentPhase, seen: DeploymentPhase) -> None:
    assert observe_phase(before, seen) is DeploymentPhase.PENDING


def test_degraded_is_routable_and_a_start_is_not() -> None:
    assert {DeploymentPhase.READY, DeploymentPhase.DEGRADED} == ROUTABLE


@pytest.mark.parametrize("state", TrafficState)
def test_only_an_active_datacenter_weighs_all_and_one_on_its_way_a_part(state: TrafficState) -> None:
    ramped = state in (TrafficState.DRAINING, TrafficState.WARMING)
    assert effective_weight(state, 70, 50) == (70 if state is TrafficState.ACTIVE else 35 if ramped else 0)
    assert effective_weight(state, 70, 0) == (70 if state is TrafficState.ACTIVE else 0)


def test_a_small_part_is_never_rounded_to_none() -> None:
    assert effective_weight(TrafficState.DRAINING, 1, 1) == 1
