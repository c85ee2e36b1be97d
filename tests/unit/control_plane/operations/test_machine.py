"""The tables of operations, steps and commands, every state against every event."""

from enum import StrEnum
from itertools import permutations, product

import pytest

from control_plane.contracts.agent_sync import CommandState
from control_plane.contracts.operations import OperationState, StepState
from control_plane.operations.machine import (
    OPEN_COMMANDS,
    OPEN_OPERATIONS,
    CommandStatus,
    OperationEvent,
    StepEvent,
    acknowledge,
    move_operation,
    move_step,
)
from control_plane.topology.states import IllegalTransition

OPERATIONS = {
    "planned start running", "planned pause paused", "planned refuse refused", "planned cancel cancelled",
    "running pause paused", "running turn_back rolling_back", "running finish succeeded", "running fail failed",
    "running refuse refused", "running cancel cancelled", "paused resume running", "paused turn_back rolling_back",
    "paused fail failed", "paused cancel cancelled", "rolling_back finish rolled_back", "rolling_back fail failed"}
STEPS = {"pending start running", "pending skip skipped", "running finish done", "running fail failed"}


def after(table: set[str], state: StrEnum, event: StrEnum) -> str | None:
    return next((words.split()[2] for words in table if words.split()[:2] == [state.value, event.value]), None)


@pytest.mark.parametrize(("state", "event"), list(product(OperationState, OperationEvent)))
def test_operations_move_as_the_table_says_or_not_at_all(state: OperationState, event: OperationEvent) -> None:
    wanted = after(OPERATIONS, state, event)
    if wanted is None:
        with pytest.raises(IllegalTransition):
            move_operation(state, event)
    else:
        assert move_operation(state, event).value == wanted


@pytest.mark.parametrize(("state", "event"), list(product(StepState, StepEvent)))
def test_steps_move_as_the_table_says_or_not_at_all(state: StepState, event: StepEvent) -> None:
    wanted = after(STEPS, state, event)
    if wanted is None:
        with pytest.raises(IllegalTransition):
            move_step(state, event)
    else:
        assert move_step(state, event).value == wanted


@pytest.mark.parametrize("state", [state for state in OperationState if state not in OPEN_OPERATIONS])
def test_an_operation_that_ended_never_moves_again(state: OperationState) -> None:
    for event in OperationEvent:
        with pytest.raises(IllegalTransition):
            move_operation(state, event)


@pytest.mark.parametrize(("before", "ack"), list(product(CommandStatus, CommandState)))
def test_a_command_takes_an_acknowledgement_only_while_it_is_open(before: CommandStatus, ack: CommandState) -> None:
    assert acknowledge(before, ack).value == (ack.value if before in OPEN_COMMANDS else before.value)


@pytest.mark.parametrize("order", list(permutations([
    CommandState.ACCEPTED, CommandState.ACCEPTED, CommandState.SUCCEEDED, CommandState.FAILED])))
def test_acknowledgements_in_any_order_end_with_the_first_terminal_one(order: tuple[CommandState, ...]) -> None:
    status = CommandStatus.ISSUED
    for ack in order:
        status = acknowledge(status, ack)
    assert status.value == next(ack.value for ack in order if ack is not CommandState.ACCEPTED)
