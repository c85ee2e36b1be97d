"""Operations that stand still: because an operator said so, automation is frozen, or an agent is not heard from.

What Meridian paused goes on by itself once the reason is gone; what an operator paused goes on when one says so. The
deadline stands still with it. What is being rolled back goes on whatever happens: it makes things as they were.
"""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts.operations import OperationState
from control_plane.operations import machine, repository
from control_plane.operations.machine import OperationEvent
from control_plane.operations.models import Operation, OperationStep
from control_plane.operations.playbooks import PLAYBOOKS
from control_plane.operations.scope import Scope

BY_ITSELF = "meridian"


async def stands_still(session: AsyncSession, operation: Operation, step: OperationStep, seen: Scope) -> bool:
    """Whether the operation must not be looked at now; pauses it, or lets it go on."""
    if operation.state is OperationState.ROLLING_BACK:
        return False
    if operation.state is OperationState.PAUSED and operation.paused_by != BY_ITSELF:
        return True
    silent: list[str] = []
    if step.name in PLAYBOOKS[operation.kind].needs_agents:
        silent = silent_fleets(operation, await repository.claims(session, operation.id), seen)
    reason = why(operation, silent, seen.frozen)
    if reason:
        await pause(session, operation, reason, BY_ITSELF)
        return True
    if operation.state is OperationState.PAUSED:
        await resume(session, operation)
    return False


def why(operation: Operation, silent: list[str], frozen: str) -> str:
    """What keeps an operation from going on, in words; empty when nothing does."""
    if operation.automatic and frozen:
        return frozen
    if silent:
        noun = "agent is" if len(silent) == 1 else "agents are"
        return f"the {noun} not heard from: {', '.join(silent)}"
    return ""


def silent_fleets(operation: Operation, claimed: Sequence[str], seen: Scope) -> list[str]:
    """The fleets of an operation whose agents hold no live lease."""
    mine = {one.row.fleet_id for one in seen.deployments if f"deployment:{one.row.id}" in claimed}
    mine |= {fleet.id for fleet in seen.fleets_in(operation.datacenter_id or "")}
    return [fleet.id for fleet in seen.fleets if fleet.id in mine and not fleet.lease_live]


async def pause(session: AsyncSession, operation: Operation, reason: str, by: str) -> None:
    """Lets it stand still from now on; the reason may change while it does."""
    if operation.state is not OperationState.PAUSED:
        paused_at = await repository.now(session)  # read first: a query flushes, and the row is whole only with all
        operation.state = machine.move_operation(operation.state, OperationEvent.PAUSE)
        operation.paused_at = paused_at
    operation.paused, operation.paused_by = reason, by
    await session.flush()


async def resume(session: AsyncSession, operation: Operation) -> None:
    """Lets it go on, with as much time as it had."""
    await end_standstill(session, operation)
    operation.state = machine.move_operation(operation.state, OperationEvent.RESUME)
    operation.paused = None
    await session.flush()


async def end_standstill(session: AsyncSession, operation: Operation) -> None:
    """Gives back the time in which it stood still, to it and to its orders; the caller moves its state at once."""
    now = await repository.now(session)
    assert operation.paused_at is not None  # noqa: S101 - it is paused
    stood = now - operation.paused_at
    await repository.postpone_commands(session, operation.id, stood)
    operation.deadline_at += stood
    operation.paused_by = operation.paused_at = None
