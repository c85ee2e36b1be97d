"""Creates, shows and cancels operations. What an open one
claims no other can have; asking twice makes one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import paging
from control_plane.audit import service as audit
from control_plane.contracts import ids
from control_plane.contracts.operations import (
    OperationKind,
    OperationPlan,
    OperationRequest,
    OperationState,
    OperationView,
    StepState,
    StepView,
)
from control_plane.contracts.operator import Page
from control_plane.contracts.problem import Problem
from control_plane.contracts.signing import SigningKey
from control_plane.errors import Conflict, IllegalTransition, NotFound, UnsafeChange
from control_plane.operations import advance, commands, machine, repository, safety, scope
from control_plane.operations.facts import Pace
from control_plane.operations.machine import OperationEvent, StepEvent
from control_plane.operations.models import Operation, OperationClaim, OperationStep
from control_plane.operations.playbooks import PLAYBOOKS
from control_plane.operations.safety import Provider, Violation
from control_plane.operations.scope import Scope
from control_plane.operations.target import Target, resolve
from control_plane.routing import publisher
from control_plane.topology.service import move_traffic


@dataclass(frozen=True, slots=True)
class Outcome:
    """What asking for an operation came to. `refusal` is to be raised once the transaction is committed."""

    plan: OperationPlan
    operation: OperationView | None
    is_new: bool = False
    refusal: UnsafeChange | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Who asks for what. `automatic`: no operator did."""

    request: OperationRequest
    target: Target
    actor: str
    idempotency_key: str | None
    automatic: bool


async def create(session: AsyncSession, asked: OperationRequest, actor: str, idempotency_key: str | None,
                 automatic: bool = False) -> Outcome:
    """Starts an operation, or finds the one that this asks for again.

    Raises:
        NotFound: something that it names is not there.
        Conflict: another operation is under way there, or the idempotency key was used for another one.
        IllegalTransition: the datacenter's traffic is not where this operation begins.
    """
    seen = await scope.read_locked(session)
    target = resolve(asked, seen)
    violation = _violation(asked, seen)
    plan = _plan(asked, target, seen, violation)
    earlier = await _earlier(session, asked, target, actor, idempotency_key)
    if earlier is not None:
        return Outcome(plan, (await views(session, [earlier]))[0], refusal=_refusal_of(earlier))
    _check_start(asked, seen)
    if asked.dry_run:
        return Outcome(plan, None)
    operation = await _store(session, Ask(asked, target, actor, idempotency_key, automatic), seen, violation)
    if operation.state is OperationState.REFUSED:
        return Outcome(plan, None, refusal=_refusal_of(operation))
    await commands.announce(session, target.fleets)
    return Outcome(plan, (await views(session, [operation]))[0], is_new=True)


async def cancel(session: AsyncSession, key: SigningKey, operation_id: str, actor: str) -> OperationView:
    """Ends an operation that is under way and puts traffic back to where it was.

    Raises:
        NotFound: there is no such operation.
        IllegalTransition: it has ended already.
    """
    seen = await scope.read_locked(session)
    operation = await repository.lock_operation(session, operation_id)
    if operation is None:
        raise NotFound(f"there is no operation {operation_id!r}")
    if operation.state not in machine.OPEN_OPERATIONS:
        raise IllegalTransition(f"the operation has ended already: {operation.state.value}")
    for step in (await repository.steps(session, [operation.id]))[operation.id]:
        if step.state is StepState.RUNNING:
            step.state = machine.move_step(step.state, StepEvent.FAIL)
            step.detail, step.finished_at = f"cancelled by {actor}", seen.now
    operation.error = f"cancelled by {actor}"
    await advance.close(session, operation, OperationEvent.CANCEL, actor)
    place = seen.datacenters.get(operation.datacenter_id or "")
    event = PLAYBOOKS[operation.kind].cancelling.get(place.traffic_state) if place else None
    if place is not None and event is not None:
        move_traffic(place, event, actor, operation.error)
        await session.flush()
        await publisher.publish(session, key, advance.cause(operation.id))
    return (await views(session, [operation]))[0]


async def get(session: AsyncSession, operation_id: str) -> OperationView:
    """One operation.

    Raises:
        NotFound: there is no such operation.
    """
    operation = await repository.operation(session, operation_id)
    if operation is None:
        raise NotFound(f"there is no operation {operation_id!r}")
    return (await views(session, [operation]))[0]


async def listed(session: AsyncSession, state: OperationState | None, asked: paging.Asked) -> Page[OperationView]:
    """A page of operations, the newest first."""
    found = await repository.page(session, state, asked.cursor, asked.limit + 1)
    return paging.page(await views(session, found), asked, key=lambda operation: operation.id)


async def views(session: AsyncSession, operations: Sequence[Operation]) -> list[OperationView]:
    """Operations with their steps."""
    steps = await repository.steps(session, [operation.id for operation in operations])
    return [OperationView(
        id=one.id, kind=one.kind, subject=one.subject, datacenter=one.datacenter_id, state=one.state, reason=one.reason,
        requested_by=one.requested_by, automatic=one.automatic, paused=one.paused, forced=one.forced,
        created_at=one.created_at, finished_at=one.finished_at,
        deadline_at=one.deadline_at, error=one.error, steps=[StepView(
            seq=step.seq, name=step.name.value, state=step.state, detail=step.detail, started_at=step.started_at,
            finished_at=step.finished_at) for step in steps[one.id]]) for one in operations]


async def _earlier(session: AsyncSession, asked: OperationRequest, target: Target, actor: str,
                   key: str | None) -> Operation | None:
    """The operation that `asked` repeats: by its idempotency key, or because it is under way."""
    earlier = await repository.by_idempotency_key(session, actor, key) if key else None
    if earlier is not None:
        if not _is_same(earlier, asked, target):
            raise Conflict("this idempotency key was used for another operation; use a new one",
                           code="idempotency_conflict")
        return earlier
    for held in await repository.claimants(session, target.resources):
        if not _is_same(held, asked, target):
            raise Conflict(f"a {held.kind.value} of {held.subject} is under way, {held.id}; "
                           "wait for it or cancel it first", code="operation_open")
        return None if asked.dry_run else held
    return None


def _is_same(one: Operation, asked: OperationRequest, target: Target) -> bool:
    return (one.kind, one.datacenter_id, one.arguments) == (asked.kind, target.datacenter_id, target.arguments)


def _check_start(asked: OperationRequest, seen: Scope) -> None:
    allowed = PLAYBOOKS[asked.kind].starts_from
    if asked.datacenter is not None and seen.datacenters[asked.datacenter].traffic_state not in allowed:
        state = seen.datacenters[asked.datacenter].traffic_state
        raise IllegalTransition(f"{asked.datacenter} is {state.value}; there is nothing to {asked.kind.value}")


def _violation(asked: OperationRequest, seen: Scope) -> Violation | None:
    if asked.kind is not OperationKind.DRAIN or asked.datacenter is None:
        return None
    return safety.check_leaving(asked.datacenter, scope.providers(seen))


def _plan(asked: OperationRequest, target: Target, seen: Scope, violation: Violation | None) -> OperationPlan:
    live_since = seen.now - timedelta(seconds=Pace().edge_excused_after_s)
    live = [edge for edge in seen.edges if edge.last_seen_at > live_since]
    places = scope.providers(seen)
    models = sorted({one.row.model_id for one in seen.deployments if one.row.id in target.deployments})
    place = asked.datacenter
    return OperationPlan(
        kind=asked.kind, subject=target.subject, datacenter=place,
        traffic_state=seen.datacenters[place].traffic_state if place else None,
        steps=[step.value for step in PLAYBOOKS[asked.kind].steps], models=models,
        open_requests=sum(int(edge.open_requests.get(place, 0)) for edge in live) if live and place else None,
        remaining_datacenters={model: _serving_after(asked, seen, model, places[model]) for model in models},
        refusal=_problem(violation) if violation and not asked.force else None)


def _serving_after(asked: OperationRequest, seen: Scope, model: str, places: list[Provider]) -> list[str]:
    """Who serves a model once the operation is over: without the datacenter, or with it again."""
    others = safety.remaining_datacenters(asked.datacenter or "", places)
    returns = asked.kind is OperationKind.RESTORE and model in seen.models_in(asked.datacenter or "", wanted=True)
    return sorted([*others, asked.datacenter or ""]) if returns else others


async def _store(session: AsyncSession, ask: Ask, seen: Scope, violation: Violation | None) -> Operation:
    """The operation, planned or refused, with its claims and its audit event."""
    asked, target = ask.request, ask.target
    refused = violation is not None and not asked.force
    operation = Operation(
        id=ids.new_id("op"), kind=asked.kind, datacenter_id=target.datacenter_id, subject=target.subject,
        arguments=target.arguments, undo={}, automatic=ask.automatic,
        state=OperationState.REFUSED if refused else OperationState.PLANNED, reason=asked.reason,
        requested_by=ask.actor, idempotency_key=ask.idempotency_key, forced=asked.force, created_at=seen.now,
        deadline_at=seen.now + timedelta(seconds=asked.deadline_s), finished_at=seen.now if refused else None,
        error=violation.message if violation and refused else None, rule=violation.rule if violation else None,
        numbers=dict(violation.numbers) if violation else None)
    session.add(operation)
    await session.flush()
    session.add_all(
        OperationStep(operation_id=operation.id, seq=seq, name=name, state=StepState.PENDING, detail="", memory={})
        for seq, name in enumerate(PLAYBOOKS[asked.kind].steps, start=1))
    if not refused:
        session.add_all(OperationClaim(resource=one, operation_id=operation.id) for one in target.resources)
    audit.record(
        session, actor=ask.actor, action=f"{asked.kind.value}.{'refuse' if refused else 'create'}",
        target=advance.target_of(operation), reason=asked.reason,
        after={"operation": operation.id, "forced": asked.force, "deadline_s": asked.deadline_s,
               "rule": operation.rule, "numbers": operation.numbers, "order": target.arguments})
    await session.flush()
    return operation


def _problem(violation: Violation) -> Problem:
    return Problem(code=UnsafeChange.code, message=violation.message, rule=violation.rule, numbers=violation.numbers)


def _refusal_of(operation: Operation) -> UnsafeChange | None:
    if operation.state is not OperationState.REFUSED:
        return None
    return UnsafeChange(operation.error or "refused", rule=operation.rule,
                        numbers={name: str(value) for name, value in (operation.numbers or {}).items()})
