"""Fencing, the command machine and phases."""

from typing import Any

import pytest

from control_plane.contracts.agent_sync import AgentSyncAnswer, CommandState, DeploymentPhase, ObservedPool
from fleet_agent.core import (
    AgentState,
    Answered,
    Complain,
    Drive,
    LeaseMoved,
    LeaseTaken,
    Observed,
    Save,
    Standing,
    phase_of,
    step,
)
from tests.unit.fleet_agent import examples

NOW_S = 1_000.0


def after(*events: object, state: AgentState | None = None, now_s: float = NOW_S) -> AgentState:
    state = state or AgentState()
    for event in events:
        state, _ = step(state, event, now_s)  # type: ignore[arg-type]
    return state


def leading(**changes: object) -> AgentState:
    fields = {"epoch": 3, "generation": 5, "desired": examples.desired(5), "last_seq": 7, "standing": Standing.LEADING}
    return AgentState(**(fields | changes))  # type: ignore[arg-type]


def states(state: AgentState) -> dict[str, CommandState]:
    return {ack.command_id: ack.state for ack in state.acks()}


def test_the_first_answer_is_saved_before_it_is_driven() -> None:
    first = examples.desired(1)
    state, actions = step(AgentState(), Answered(examples.answer(1, first)), NOW_S)
    assert actions == [Save(state), Drive(first)]
    assert (state.epoch, state.generation, state.desired, state.standing) == (1, 1, first, Standing.LEADING)


def test_a_lower_epoch_is_refused_whole() -> None:
    before = leading()
    state, actions = step(before, Answered(examples.answer(2, examples.desired(9), examples.drain(9, 2))), NOW_S)
    assert state == before
    assert actions == [Complain("refused an answer of epoch 2: this fleet has seen 3")]


def test_the_same_epoch_renews_the_lease_and_changes_nothing() -> None:
    before = leading()
    state, actions = step(before, Answered(examples.answer(3)), NOW_S)
    assert (state, actions) == (before, [])


def test_a_higher_epoch_is_saved() -> None:
    state, actions = step(leading(), Answered(examples.answer(4)), NOW_S)
    assert state.epoch == 4
    assert actions == [Save(state)]


def test_a_lower_generation_is_refused_and_the_epoch_of_its_answer_still_counts() -> None:
    state, actions = step(leading(), Answered(examples.answer(4, examples.desired(4))), NOW_S)
    assert (state.generation, state.desired, state.epoch) == (5, examples.desired(5), 4)
    assert actions == [Save(state), Complain("refused generation 4: this fleet has seen 5")]


def test_the_same_generation_is_not_driven_again() -> None:
    other = examples.desired(5, examples.deployment("another"))
    state, actions = step(leading(), Answered(examples.answer(3, other)), NOW_S)
    assert (state.desired, actions) == (examples.desired(5), [])


def test_a_higher_generation_is_driven() -> None:
    newer = examples.desired(6)
    state, actions = step(leading(), Answered(examples.answer(3, newer)), NOW_S)
    assert (state.generation, actions) == (6, [Save(state), Drive(newer)])


def test_generation_zero_without_deployments_is_driven_the_first_time() -> None:
    empty = examples.DesiredState(generation=0, deployments=[])
    _, actions = step(AgentState(), Answered(examples.answer(1, empty)), NOW_S)
    assert Drive(empty) in actions


def test_a_lease_that_moved_on_is_asked_for_anew() -> None:
    assert after(LeaseMoved(), state=leading()).standing is Standing.ASKING


def test_being_superseded_forgets_nothing() -> None:
    state, actions = step(leading(), LeaseTaken(), NOW_S)
    assert (state, actions) == (leading(standing=Standing.SUPERSEDED), [])


def test_a_superseded_agent_does_not_progress_commands() -> None:
    state = after(Answered(examples.answer(1, None, examples.drain())), LeaseTaken(), Observed((examples.observed(),)))
    assert states(state) == {"command_1": CommandState.ACCEPTED}


def test_a_superseded_agent_leads_again_when_it_is_granted_the_lease() -> None:
    assert after(LeaseTaken(), Answered(examples.answer(4)), state=leading()).standing is Standing.LEADING


def test_a_new_command_is_accepted_and_saved() -> None:
    state, actions = step(leading(), Answered(examples.answer(3, None, examples.drain(8, 3))), NOW_S)
    assert (states(state), state.last_seq) == ({"command_8": CommandState.ACCEPTED}, 8)
    assert actions == [Save(state)]


def test_a_command_of_an_older_lease_is_rejected() -> None:
    state = after(Answered(examples.answer(3, None, examples.drain(8, 2))), state=leading())
    assert [(ack.state, ack.result) for ack in state.acks()] == [
        (CommandState.REJECTED, "issued under epoch 2, the lease is at 3")]


def test_a_command_with_a_used_sequence_number_is_rejected() -> None:
    state = after(Answered(examples.answer(3, None, examples.drain(7, 3))), state=leading())
    assert [(ack.state, ack.result) for ack in state.acks()] == [
        (CommandState.REJECTED, "sequence number 7 is not above 7")]
    assert state.last_seq == 7


def test_commands_in_one_answer_are_taken_by_sequence_number() -> None:
    answer = examples.answer(3, None, examples.drain(9, 3), examples.drain(8, 3))
    assert set(states(after(Answered(answer), state=leading())).values()) == {CommandState.ACCEPTED}


def test_a_repeated_command_is_the_same_command() -> None:
    answered = Answered(examples.answer(1, None, examples.drain()))
    once = after(answered)
    again, actions = step(once, answered, NOW_S + 10)
    assert (again, actions) == (once, [])


def test_an_accepted_command_outlives_a_change_of_the_lease() -> None:
    state = after(
        Answered(examples.answer(1, None, examples.drain())), Answered(examples.answer(2, None, examples.drain())))
    assert states(state) == {"command_1": CommandState.ACCEPTED}


def test_a_drain_succeeds_when_no_request_is_left() -> None:
    state = after(Answered(examples.answer(1, None, examples.drain())))
    state, actions = step(state, Observed((examples.observed(0, 0),)), NOW_S + 1)
    assert states(state) == {"command_1": CommandState.SUCCEEDED}
    assert actions == [Save(state)]


@pytest.mark.parametrize("seen", [(1, 0), (0, 1), (None, 0), (0, None), (None, None)])
def test_a_drain_waits_for_requests_and_for_unknown_figures(seen: tuple[int | None, int | None]) -> None:
    state = after(Answered(examples.answer(1, None, examples.drain())), Observed((examples.observed(*seen),)))
    assert states(state) == {"command_1": CommandState.ACCEPTED}


def test_a_drain_waits_for_every_deployment() -> None:
    state = after(
        Answered(examples.answer(1, None, examples.drain())),
        Observed((examples.observed(0, 0), examples.observed(2, 1))))
    assert states(state) == {"command_1": CommandState.ACCEPTED}


def test_a_drain_of_a_fleet_without_deployments_succeeds() -> None:
    state = after(Answered(examples.answer(1, None, examples.drain())), Observed(()))
    assert states(state) == {"command_1": CommandState.SUCCEEDED}


@pytest.mark.parametrize(("seen", "left"), [((3, 1), "3"), ((None, 0), "an unknown number of")])
def test_a_command_expires_at_its_deadline_and_says_what_was_left(seen: tuple[int, int], left: str) -> None:
    state = after(Answered(examples.answer(1, None, examples.drain(deadline_s=60))))
    state = after(Observed((examples.observed(*seen),)), state=state, now_s=NOW_S + 60)
    assert [(ack.state, ack.result) for ack in state.acks()] == [
        (CommandState.EXPIRED, f"{left} requests were left inside the engine")]


def test_a_repeated_listing_does_not_move_the_deadline() -> None:
    answered = Answered(examples.answer(1, None, examples.drain(deadline_s=60)))
    state = after(answered, state=after(answered), now_s=NOW_S + 59)
    assert states(after(Observed((examples.observed(1, 0),)), state=state, now_s=NOW_S + 60)) == {
        "command_1": CommandState.EXPIRED}


@pytest.mark.parametrize("observed", [examples.observed(0, 0), examples.observed(5, 0)])
def test_an_outcome_never_changes(observed: examples.ObservedDeployment) -> None:
    state = after(Answered(examples.answer(1, None, examples.drain())), Observed((examples.observed(),)))
    assert after(Observed((observed,)), state=state, now_s=NOW_S + 1_000) == state


def test_an_outcome_is_repeated_until_the_command_is_no_longer_listed() -> None:
    done = after(Answered(examples.answer(1, None, examples.drain())), Observed((examples.observed(),)))
    still_listed = after(Answered(examples.answer(1, None, examples.drain())), state=done)
    assert states(still_listed) == {"command_1": CommandState.SUCCEEDED}
    assert after(Answered(examples.answer(1)), state=still_listed).acks() == []


def test_a_withdrawn_command_is_dropped() -> None:
    state = after(Answered(examples.answer(1, None, examples.drain())), Answered(examples.answer(1)))
    assert (state.acks(), state.last_seq) == ([], 1)


def test_a_command_that_was_settled_and_comes_back_is_rejected() -> None:
    state = after(Answered(examples.answer(1, None, examples.drain())), Observed((examples.observed(),)),
                  Answered(examples.answer(1)), Answered(examples.answer(1, None, examples.drain())))
    assert states(state) == {"command_1": CommandState.REJECTED}


def test_open_commands_are_known() -> None:
    state = after(Answered(examples.answer(1, None, examples.drain())))
    assert state.has_open_commands
    assert not after(Observed((examples.observed(),)), state=state).has_open_commands


def pools(*counts: tuple[int, int]) -> list[ObservedPool]:
    return [ObservedPool(role="decode", desired_replicas=wanted, ready_replicas=ready) for wanted, ready in counts]


@pytest.mark.parametrize(("counts", "model_ready", "was_ready", "phase"), [
    ([(1, 1), (2, 2)], True, False, DeploymentPhase.READY),
    ([(1, 1), (2, 3)], True, True, DeploymentPhase.READY),
    ([(1, 1), (2, 1)], True, False, DeploymentPhase.PROVISIONING),
    ([(1, 1), (2, 1)], True, True, DeploymentPhase.DEGRADED),
    ([(1, 1), (2, 2)], False, False, DeploymentPhase.PROVISIONING),
    ([(1, 1), (2, 2)], False, True, DeploymentPhase.DEGRADED),
    ([(1, 1), (2, 2)], None, True, DeploymentPhase.DEGRADED),
    ([(1, 0), (2, 0)], False, True, DeploymentPhase.DEGRADED),
    ([(1, 1), (0, 0)], True, False, DeploymentPhase.READY),
    ([(0, 0), (0, 0)], None, True, DeploymentPhase.PENDING),
    ([], True, True, DeploymentPhase.PENDING),
])
def test_the_phase_follows_from_replicas_and_the_frontends_word(
    counts: list[tuple[int, int]], model_ready: bool | None, was_ready: bool, phase: DeploymentPhase
) -> None:
    assert phase_of(pools(*counts), model_ready, was_ready) is phase


def in_lineage(lineage: int, *rest: Any) -> AgentSyncAnswer:
    return examples.answer(*rest).model_copy(update={"lineage": lineage})


SEEN_MUCH = AgentState(
    lineage=2, epoch=7, generation=9, desired=examples.desired(9), last_seq=4, standing=Standing.LEADING)


def test_a_proved_lineage_starts_every_number_anew() -> None:
    then, actions = step(SEEN_MUCH, Answered(in_lineage(3, 1, examples.desired(2), examples.drain(1)), 3), 0.0)
    assert (then.lineage, then.epoch, then.generation, then.last_seq) == (3, 1, 2, 1)
    assert actions == [Save(then), Drive(examples.desired(2))]


@pytest.mark.parametrize("proved", [0, 2, 4])
def test_a_lineage_that_is_not_proved_changes_nothing(proved: int) -> None:
    then, actions = step(SEEN_MUCH, Answered(in_lineage(3, 1, examples.desired(2), examples.drain(1)), proved), 0.0)
    assert then == SEEN_MUCH
    assert [type(action) for action in actions] == [Complain]


def test_a_proof_alone_without_a_higher_lineage_lets_no_lower_epoch_pass() -> None:
    then, _ = step(SEEN_MUCH, Answered(in_lineage(2, 6, examples.desired(2)), 2), 0.0)
    assert then == SEEN_MUCH


def test_an_answer_of_a_lower_lineage_is_refused_however_high_its_epoch() -> None:
    then, _ = step(SEEN_MUCH, Answered(in_lineage(1, 99, examples.desired(99)), 1), 0.0)
    assert then == SEEN_MUCH


def test_what_is_driven_goes_on_until_the_new_lineage_says_otherwise() -> None:
    then, actions = step(SEEN_MUCH, Answered(in_lineage(3, 1), 3), 0.0)
    assert then.desired == examples.desired(9)
    assert actions == [Save(then)]


def test_commands_of_the_older_lineage_are_forgotten() -> None:
    busy, _ = step(SEEN_MUCH, Answered(in_lineage(2, 7, None, examples.drain(5, epoch=7))), 0.0)
    assert busy.has_open_commands
    then, _ = step(busy, Answered(in_lineage(3, 1), 3), 0.0)
    assert then.commands == ()
