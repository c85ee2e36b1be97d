"""What operators do with an operation that is under way: pause it, let it go on, cancel it, roll it back."""

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.audit import service as audit
from control_plane.contracts.operations import OperationKind, OperationState, OperationView, StepState
from control_plane.contracts.signing import SigningKey
from control_plane.errors import IllegalTransition, NotFound
from control_plane.operations import advance, commands, machine, pausing, repository, scope, service
from control_plane.operations.machine import OperationEvent, StepEvent
from control_plane.operations.models import Operation
from control_plane.operations.playbooks import PLAYBOOKS
from control_plane.operations.scope import Scope
from control_plane.routing import publisher
from control_plane.topology.models import Datacenter
from control_plane.topology.service import move_traffic, touch


async def pause(session: AsyncSession, operation_id: str, actor: str) -> OperationView:
    """Lets an operation stand still where it is until somebody resumes it. Its deadline stands still with it.

    Raises:
        NotFound: there is no such operation.
        IllegalTransition: it has ended, or is being rolled back.
    """
    operation, _ = await _open(session, operation_id)
    if operation.state is OperationState.ROLLING_BACK:
        raise IllegalTransition("it is being rolled back, which is not paused: it makes things as they were")
    if operation.paused_by != actor:
        await pausing.pause(session, operation, f"paused by {actor}", actor)
        _record(session, operation, "pause", actor)
    return await _seen(session, operation)


async def resume(session: AsyncSession, operation_id: str, actor: str) -> OperationView:
    """Lets an operation go on that an operator paused.

    Raises:
        NotFound: there is no such operation.
        IllegalTransition: it has ended, is not paused, or waits for something that an operator cannot overrule here.
    """
    operation, _ = await _open(session, operation_id)
    if operation.state is not OperationState.PAUSED:
        raise IllegalTransition(f"the operation is not paused: it is {operation.state.value}")
    if operation.paused_by == pausing.BY_ITSELF:
        raise IllegalTransition(f"it goes on by itself once this is over: {operation.paused}")
    await pausing.resume(session, operation)
    _record(session, operation, "resume", actor)
    await commands.announce(session, ())
    return await _seen(session, operation)


async def cancel(session: AsyncSession, key: SigningKey, operation_id: str, actor: str) -> OperationView:
    """Ends an operation that is under way and puts traffic back to where it was, at once or by its own steps.

    Raises:
        NotFound: there is no such operation.
        IllegalTransition: it has ended already.
    """
    operation, seen = await _open(session, operation_id)
    if operation.state is OperationState.ROLLING_BACK:
        raise IllegalTransition("it is being rolled back already, which makes things as they were")
    book = PLAYBOOKS[operation.kind]
    await _stop_step(session, operation, seen, f"cancelled by {actor}")
    if book.reverts and operation.undo:
        await _turn_back(session, operation, actor)
        return await _seen(session, operation)
    await advance.close(session, operation, OperationEvent.CANCEL, actor)
    place = seen.datacenters.get(operation.datacenter_id or "")
    if place is not None and _give_back(place, operation, actor):
        await session.flush()
        await publisher.publish(session, key, advance.cause(operation.id))
    return await _seen(session, operation)


async def rollback(session: AsyncSession, key: SigningKey, operation_id: str, actor: str) -> OperationView:
    """Undoes an operation that is under way by the steps that its kind has for that; one that has not begun is
    cancelled.

    Raises:
        NotFound: there is no such operation.
        IllegalTransition: it has ended; the message says what undoes it then.
    """
    operation = await repository.operation(session, operation_id)
    if operation is not None and operation.state not in machine.OPEN_OPERATIONS:
        raise IllegalTransition(f"the operation has ended already: {operation.state.value}{_instead(operation)}")
    operation, seen = await _open(session, operation_id)
    if operation.state is OperationState.ROLLING_BACK:
        return await _seen(session, operation)
    if all(step.state is StepState.PENDING for step in
           (await repository.steps(session, [operation.id]))[operation.id]):
        return await cancel(session, key, operation_id, actor)
    await _stop_step(session, operation, seen, f"rolled back by {actor}")
    await _turn_back(session, operation, actor)
    return await _seen(session, operation)


async def _open(session: AsyncSession, operation_id: str) -> tuple[Operation, Scope]:
    seen = await scope.read_locked(session)
    operation = await repository.lock_operation(session, operation_id)
    if operation is None:
        raise NotFound(f"there is no operation {operation_id!r}; meridian operations list names them")
    if operation.state not in machine.OPEN_OPERATIONS:
        raise IllegalTransition(f"the operation has ended already: {operation.state.value}")
    return operation, seen


async def _seen(session: AsyncSession, operation: Operation) -> OperationView:
    return (await service.views(session, [operation]))[0]


async def _stop_step(session: AsyncSession, operation: Operation, seen: Scope, words: str) -> None:
    operation.error = words
    for step in (await repository.steps(session, [operation.id]))[operation.id]:
        if step.state is StepState.RUNNING:
            step.state = machine.move_step(step.state, StepEvent.FAIL)
            step.detail, step.finished_at = words, seen.now


async def _turn_back(session: AsyncSession, operation: Operation, actor: str) -> None:
    """What it ordered is not wanted any more; what undoes it gives its own orders."""
    await commands.withdraw(session, operation.id)
    if operation.state is OperationState.PLANNED:
        operation.state = machine.move_operation(operation.state, OperationEvent.START)
    await advance.turn_back(session, operation, actor)
    await commands.announce(session, ())


def _give_back(place: Datacenter, operation: Operation, actor: str) -> bool:
    """A cancelled operation's traffic as it was, at once; whether edges route by any of it."""
    events = PLAYBOOKS[operation.kind].cancelling.get(place.traffic_state, ())
    for event in events:
        move_traffic(place, event, actor, operation.error or "")
    if place.evacuate:
        place.evacuate = False
        touch(place, actor, operation.error or "")
        return True
    return bool(events)


def _record(session: AsyncSession, operation: Operation, verb: str, actor: str) -> None:
    audit.record(session, actor=actor, action=f"{operation.kind.value}.{verb}", target=advance.target_of(operation),
                 after={"operation": operation.id})


def _instead(operation: Operation) -> str:
    """How to undo what has ended well, as it is typed."""
    if operation.state is not OperationState.SUCCEEDED:
        return ""
    place, order = operation.datacenter_id, operation.arguments
    match operation.kind:
        case OperationKind.DRAIN | OperationKind.FAILOVER:
            return f". Undo it with: meridian restore {place} --reason …"
        case OperationKind.RESTORE:
            return f". Undo it with: meridian drain {place} --reason …"
        case OperationKind.SHIFT:
            return (f". Undo it with: meridian shift {order['model']} --from {order['target']} --to {order['source']} "
                    "--percent … --reason …")
        case OperationKind.ROLLOUT:
            return f". Undo it with: meridian rollout {order['model']} --file (the specification before) --reason …"
