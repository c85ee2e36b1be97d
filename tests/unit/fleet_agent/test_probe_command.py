"""Probes as commands: fenced like others, over when the engine answered or failed."""

from control_plane.contracts.agent_sync import CommandState
from fleet_agent.core import AgentState, Answered, LeaseTaken, Observed, Probed, Save, step
from tests.unit.fleet_agent import examples

NOW_S = 1_000.0


def ordered(**probe: float) -> AgentState:
    return after(Answered(examples.answer(1, None, examples.probe(**probe))))  # type: ignore[arg-type]


def after(*events: object, state: AgentState | None = None, now_s: float = NOW_S) -> AgentState:
    state = state or AgentState()
    for event in events:
        state, _ = step(state, event, now_s)  # type: ignore[arg-type]
    return state


def outcome(state: AgentState) -> tuple[CommandState, str]:
    (ack,) = state.acks()
    return ack.state, ack.result


def test_an_ordered_probe_is_open_until_it_is_over() -> None:
    assert [tracked.command.id for tracked in ordered().open_probes] == ["probe_1"]


def test_an_idle_engine_ends_no_probe() -> None:
    state = after(Observed((examples.observed(0, 0),)), state=ordered())
    assert outcome(state) == (CommandState.ACCEPTED, "")


def test_an_answer_ends_it_and_is_saved() -> None:
    state, actions = step(ordered(), Probed("probe_1", True, "a token"), NOW_S)
    assert outcome(state) == (CommandState.SUCCEEDED, "a token")
    assert actions == [Save(state)]
    assert state.open_probes == []


def test_a_failure_is_told_in_words() -> None:
    assert outcome(after(Probed("probe_1", False, "HTTP 500"), state=ordered())) == (CommandState.FAILED, "HTTP 500")


def test_what_is_over_never_changes_again() -> None:
    state = after(Probed("probe_1", False, "HTTP 500"), Probed("probe_1", True, "late"), state=ordered())
    assert outcome(state) == (CommandState.FAILED, "HTTP 500")


def test_the_outcome_of_a_probe_that_nobody_lists_any_more_is_dropped() -> None:
    state = after(Answered(examples.answer(1)), Probed("probe_1", True, "a token"), state=ordered())
    assert state.commands == ()


def test_a_probe_expires_at_its_deadline() -> None:
    state = after(Observed((examples.observed(),)), state=ordered(deadline_s=30), now_s=NOW_S + 30)
    assert outcome(state) == (CommandState.EXPIRED, "no answer in time")


def test_a_probe_of_an_older_epoch_is_rejected_and_never_carried_out() -> None:
    before = after(Answered(examples.answer(3)))
    state = after(Answered(examples.answer(3, None, examples.probe(epoch=2))), state=before)
    assert outcome(state)[0] is CommandState.REJECTED
    assert state.open_probes == []


def test_a_superseded_agent_probes_nothing() -> None:
    state = after(LeaseTaken(), state=ordered())
    assert state.open_probes == []
    assert after(Probed("probe_1", True, "a token"), state=state) == state


def test_a_drain_is_no_probe() -> None:
    state = after(Answered(examples.answer(1, None, examples.drain())))
    assert state.open_probes == []
    assert after(Probed("command_1", True, "a token"), state=state) == state
