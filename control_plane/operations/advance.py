"""Moves one operation on by one look at its step: locks, reads, decides and applies in one transaction.

Locks are taken in one order everywhere: datacenters by id, the operation, fleets, commands, the routing head.
"""

from dataclasses import asdict

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.audit import service as audit
from control_plane.contracts.operations import OperationState, StepState
from control_plane.contracts.signing import SigningKey
from control_plane.operations import commands, machine, pausing, playbooks, reading, repository, scope
from control_plane.operations.decision import Decision, Verdict
from control_plane.operations.effects import apply_effects
from control_plane.operations.facts import Facts, Pace
from control_plane.operations.machine import OperationEvent, StepEvent
from control_plane.operations.models import Operation, OperationStep

ENDING = {
    Verdict.FAIL: OperationEvent.FAIL,
    Verdict.REFUSE: OperationEvent.REFUSE,
}
BY_ITSELF = pausing.BY_ITSELF


async def advance(session: AsyncSession, key: SigningKey, operation_id: str, token: str, pace: Pace) -> bool:
    """One look at the operation's current step; whether the next look can follow at once.

    Does nothing when `token` is not the operation's lease any more, or the operation is closed or stands still.
    """
    seen = await scope.read_locked(session)
    operation = await repository.lock_operation(session, operation_id)
    if operation is None or operation.lock_token != token or operation.state not in machine.OPEN_OPERATIONS:
        return False
    steps = (await repository.steps(session, [operation.id]))[operation.id]
    step = next(step for step in steps if step.state in (StepState.PENDING, StepState.RUNNING))
    if await pausing.stands_still(session, operation, step, seen):
        return False
    if operation.state is OperationState.PLANNED:
        operation.state = machine.move_operation(operation.state, OperationEvent.START)
    if step.state is StepState.PENDING:
        step.state, step.started_at = machine.move_step(step.state, StepEvent.START), seen.now
    facts = await reading.read(session, operation, step, seen, pace)
    decision = playbooks.decide(operation.kind, step.name, facts)
    await apply_effects(session, key, operation, decision, seen)
    await _conclude(session, operation, step, decision, facts, is_last=step is steps[-1])
    return decision.verdict is Verdict.DONE and operation.state in machine.OPEN_OPERATIONS


def cause(operation_id: str) -> str:
    """What the snapshots of an operation are marked with."""
    return reading.cause(operation_id)


async def close(session: AsyncSession, operation: Operation, event: OperationEvent, actor: str) -> None:
    """Ends an operation: its orders are withdrawn, its claims and its lease are given up, and the log says so."""
    finished_at = await repository.now(session)  # read first: a query flushes, and the row is only whole with all of it
    operation.state, operation.finished_at = machine.move_operation(operation.state, event), finished_at
    operation.lock_token = operation.lock_expires_at = None
    operation.paused = operation.paused_by = operation.paused_at = None
    await commands.withdraw(session, operation.id)
    await repository.release_claims(session, operation.id)
    audit.record(session, actor=actor, action=f"{operation.kind.value}.{operation.state.value}",
                 target=target_of(operation), reason=operation.error, after={"operation": operation.id})


def target_of(operation: Operation) -> str:
    """What the audit log calls the thing that an operation is of."""
    if operation.datacenter_id is not None:
        return f"datacenter:{operation.datacenter_id}"
    return f"model:{operation.arguments['model']}"


async def turn_back(session: AsyncSession, operation: Operation, actor: str = BY_ITSELF) -> None:
    """Begins to undo an operation: what it has not begun is skipped, and the steps that undo it are added."""
    if operation.state is OperationState.PAUSED:
        await pausing.end_standstill(session, operation)
    operation.state, operation.paused = machine.move_operation(operation.state, OperationEvent.TURN_BACK), None
    steps = (await repository.steps(session, [operation.id]))[operation.id]
    for step in steps:
        if step.state is StepState.PENDING:
            step.state = machine.move_step(step.state, StepEvent.SKIP)
    session.add_all(
        repository.planned_step(operation.id, seq, one) for seq, one in enumerate(
            playbooks.PLAYBOOKS[operation.kind].planned_back(operation.undo), start=len(steps) + 1))
    audit.record(session, actor=actor, action=f"{operation.kind.value}.turn_back", target=target_of(operation),
                 reason=operation.error, after={"operation": operation.id})
    await session.flush()


async def _conclude(session: AsyncSession, operation: Operation, step: OperationStep, decision: Decision, facts: Facts,
                    is_last: bool) -> None:
    """Writes the verdict down; the last step's, or a bad one, ends the operation."""
    step.detail = decision.detail
    if decision.verdict is Verdict.WAIT:
        step.memory = asdict(decision.memory)
        return
    verdict = decision.verdict
    if verdict is Verdict.BACK and operation.state is OperationState.ROLLING_BACK:
        verdict = Verdict.FAIL  # what undoes an operation is not undone
    finished = verdict is Verdict.DONE
    step.state = machine.move_step(step.state, StepEvent.FINISH if finished else StepEvent.FAIL)
    step.finished_at = await repository.now(session)
    if finished and is_last:
        await close(session, operation, OperationEvent.FINISH, BY_ITSELF)
    if verdict is Verdict.BACK:
        operation.error = decision.detail
        await turn_back(session, operation)
    if verdict in ENDING:
        operation.error = decision.detail
        if verdict is Verdict.REFUSE and facts.violation:
            operation.rule, operation.numbers = facts.violation.rule, dict(facts.violation.numbers)
        await close(session, operation, ENDING[verdict], BY_ITSELF)
