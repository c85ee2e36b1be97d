"""How operations, their steps and their commands move, as tables over plain data. Terminal states never leave."""

from enum import StrEnum
from typing import TypeVar

from control_plane.contracts.agent_sync import CommandState
from control_plane.contracts.operations import OperationState, StepState
from control_plane.topology.states import IllegalTransition

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class OperationEvent(StrEnum):
    """What moves an operation."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    TURN_BACK = "turn_back"
    FINISH = "finish"
    FAIL = "fail"
    REFUSE = "refuse"
    CANCEL = "cancel"


class StepEvent(StrEnum):
    """What moves a step."""

    START = "start"
    FINISH = "finish"
    FAIL = "fail"
    SKIP = "skip"


class CommandStatus(StrEnum):
    """How far a command got: issued here, then what its agent acknowledged; superseded when nobody wants it now."""

    ISSUED = "issued"
    ACCEPTED = "accepted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


OPERATION_MOVES: dict[tuple[OperationState, OperationEvent], OperationState] = {
    (OperationState.PLANNED, OperationEvent.START): OperationState.RUNNING,
    (OperationState.PLANNED, OperationEvent.REFUSE): OperationState.REFUSED,
    (OperationState.PLANNED, OperationEvent.CANCEL): OperationState.CANCELLED,
    (OperationState.PLANNED, OperationEvent.PAUSE): OperationState.PAUSED,
    (OperationState.RUNNING, OperationEvent.PAUSE): OperationState.PAUSED,
    (OperationState.RUNNING, OperationEvent.TURN_BACK): OperationState.ROLLING_BACK,
    (OperationState.RUNNING, OperationEvent.FINISH): OperationState.SUCCEEDED,
    (OperationState.RUNNING, OperationEvent.FAIL): OperationState.FAILED,
    (OperationState.RUNNING, OperationEvent.REFUSE): OperationState.REFUSED,
    (OperationState.RUNNING, OperationEvent.CANCEL): OperationState.CANCELLED,
    (OperationState.PAUSED, OperationEvent.RESUME): OperationState.RUNNING,
    (OperationState.PAUSED, OperationEvent.TURN_BACK): OperationState.ROLLING_BACK,
    (OperationState.PAUSED, OperationEvent.FAIL): OperationState.FAILED,
    (OperationState.PAUSED, OperationEvent.CANCEL): OperationState.CANCELLED,
    (OperationState.ROLLING_BACK, OperationEvent.FINISH): OperationState.ROLLED_BACK,
    (OperationState.ROLLING_BACK, OperationEvent.FAIL): OperationState.FAILED,
}

STEP_MOVES: dict[tuple[StepState, StepEvent], StepState] = {
    (StepState.PENDING, StepEvent.START): StepState.RUNNING,
    (StepState.RUNNING, StepEvent.FINISH): StepState.DONE,
    (StepState.RUNNING, StepEvent.FAIL): StepState.FAILED,
    (StepState.PENDING, StepEvent.SKIP): StepState.SKIPPED,
}

OPEN_OPERATIONS = (OperationState.PLANNED, OperationState.RUNNING, OperationState.PAUSED, OperationState.ROLLING_BACK)
OPEN_COMMANDS = (CommandStatus.ISSUED, CommandStatus.ACCEPTED)


def move_operation(before: OperationState, event: OperationEvent) -> OperationState:
    """The state after `event`.

    Raises:
        IllegalTransition: the table does not hold this move.
    """
    return _move(OPERATION_MOVES, before, event)


def move_step(before: StepState, event: StepEvent) -> StepState:
    """The state after `event`.

    Raises:
        IllegalTransition: the table does not hold this move.
    """
    return _move(STEP_MOVES, before, event)


def acknowledge(before: CommandStatus, ack: CommandState) -> CommandStatus:
    """The command after its agent said `ack`, which may come late, twice or out of order: it only ever moves on."""
    return CommandStatus(ack) if before in OPEN_COMMANDS else before


def _move(table: dict[tuple[State, Event], State], before: State, event: Event) -> State:
    after = table.get((before, event))
    if after is None:
        raise IllegalTransition(before, event)
    return after
