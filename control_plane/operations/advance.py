"""Moves one operation on by one look at its step: locks, reads, decides and applies in one transaction.

Locks are taken in one order everywhere: datacenters by id, the operation, fleets, commands, the routing head.
"""

from dataclasses import asdict

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.audit import service as audit
from control_plane.contracts.operator import OperationKind, OperationState, StepState
from control_plane.contracts.signing import SigningKey
from control_plane.operations import commands, machine, playbooks, repository, safety, scope
from control_plane.operations.machine import OperationEvent, StepEvent
from control_plane.operations.models import Operation, OperationStep
from control_plane.operations.playbooks import Decision, Facts, Memory, Pace, Verdict
from control_plane.operations.scope import Scope
from control_plane.routing import publisher
from control_plane.routing import repository as routing
from control_plane.topology.service import move_traffic

ENDING = {
    Verdict.FAIL: OperationEvent.FAIL,
    Verdict.REFUSE: OperationEvent.REFUSE,
}


async def advance(session: AsyncSession, key: SigningKey, operation_id: str, token: str, pace: Pace) -> bool:
    """One look at the operation's current step; whether the next look can follow at once.

    Does nothing when `token` is not the operation's lease any more, or the operation is closed.
    """
    seen = await scope.read_locked(session)
    operation = await repository.lock_operation(session, operation_id)
    if operation is None or operation.lock_token != token or operation.state not in machine.OPEN_OPERATIONS:
        return False
    if operation.state is OperationState.PLANNED:
        operation.state = machine.move_operation(operation.state, OperationEvent.START)
    steps = (await repository.steps(session, [operation.id]))[operation.id]
    step = next(step for step in steps if step.state is not StepState.DONE)
    if step.state is StepState.PENDING:
        step.state, step.started_at = machine.move_step(step.state, StepEvent.START), seen.now
    facts = await _facts(session, operation, step, seen, pace)
    decision = playbooks.decide(operation.kind, step.name, facts)
    await _apply(session, operation, step, decision, facts, is_last=step is steps[-1])
    if decision.moves:
        place = seen.datacenters[operation.datacenter_id]
        for event in decision.moves:
            move_traffic(place, event, cause(operation.id), operation.reason)
        await session.flush()
        await publisher.publish(session, key, cause(operation.id))
    return decision.verdict is Verdict.DONE and operation.state is OperationState.RUNNING


def cause(operation_id: str) -> str:
    """What the snapshots of an operation are marked with."""
    return f"operation:{operation_id}"


async def close(session: AsyncSession, operation: Operation, event: OperationEvent, actor: str) -> None:
    """Ends an operation: its orders are withdrawn, its lease is given up, and the log says so."""
    finished_at = await repository.now(session)  # read first: a query flushes, and the row is only whole with all of it
    operation.state, operation.finished_at = machine.move_operation(operation.state, event), finished_at
    operation.lock_token = operation.lock_expires_at = None
    await commands.withdraw(session, operation.id)
    audit.record(session, actor=actor, action=f"{operation.kind.value}.{operation.state.value}",
                 target=f"datacenter:{operation.datacenter_id}", reason=operation.error,
                 after={"operation": operation.id})


async def _facts(session: AsyncSession, operation: Operation, step: OperationStep, seen: Scope, pace: Pace) -> Facts:
    violation = None
    if operation.kind is OperationKind.DRAIN and not operation.forced:
        violation = safety.check_leaving(operation.datacenter_id, scope.providers(seen))
    snapshot = await routing.caused_by(session, cause(operation.id)) or await routing.head(session)
    return Facts(
        now_s=seen.now.timestamp(), deadline_s=operation.deadline_at.timestamp(), datacenter_id=operation.datacenter_id,
        traffic_state=seen.datacenters[operation.datacenter_id].traffic_state, snapshot=snapshot,
        edges=scope.edge_facts(seen.edges, operation.datacenter_id),
        fleets=scope.fleet_facts(seen, operation, await repository.commands_of(session, operation.id)),
        violation=violation, forced=operation.forced, memory=Memory(**step.memory), pace=pace)


async def _apply(session: AsyncSession, operation: Operation, step: OperationStep, decision: Decision, facts: Facts,
                 is_last: bool) -> None:
    step.detail = decision.detail
    if decision.verdict is Verdict.WAIT:
        step.memory = asdict(decision.memory)
        if decision.order_drain:
            await commands.issue(session, operation, [fleet.id for fleet in facts.fleets], operation.deadline_at)
        return
    finished = decision.verdict is Verdict.DONE
    step.state = machine.move_step(step.state, StepEvent.FINISH if finished else StepEvent.FAIL)
    step.finished_at = await repository.now(session)
    if finished and is_last:
        await close(session, operation, OperationEvent.FINISH, "meridian")
    if not finished:
        operation.error = decision.detail
        if decision.verdict is Verdict.REFUSE and facts.violation:
            operation.rule, operation.numbers = facts.violation.rule, dict(facts.violation.numbers)
        await close(session, operation, ENDING[decision.verdict], "meridian")
