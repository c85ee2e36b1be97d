"""Creates and shows operations. What an open one claims no other can have; asking twice makes one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import paging
from control_plane.audit import service as audit
from control_plane.contracts import ids
from control_plane.contracts.operations import (
    FailoverMode,
    OperationKind,
    OperationPlan,
    OperationRequest,
    OperationState,
    OperationView,
    StepState,
    StepView,
)
from control_plane.contracts.operator import Page
from control_plane.contracts.snapshot import TrafficState
from control_plane.errors import Conflict, IllegalTransition, NotFound, UnsafeChange
from control_plane.operations import advance, commands, judging, machine, model_rules, plan, repository, scope
from control_plane.operations.demand import demand
from control_plane.operations.facts import Pace
from control_plane.operations.judging import Judgement
from control_plane.operations.machine import OperationEvent, StepEvent
from control_plane.operations.models import Operation, OperationClaim
from control_plane.operations.playbooks import PLAYBOOKS
from control_plane.operations.scope import Scope
from control_plane.operations.target import Target, resolve


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
                 automatic: bool = False, pace: Pace | None = None) -> Outcome:
    """Starts an operation, or finds the one that this asks for again. `pace` is what the plan tells times by.

    Raises:
        NotFound: something that it names is not there.
        Conflict: another operation is under way there, or the idempotency key was used for another one.
        IllegalTransition: the datacenter's traffic is not where this operation begins.
    """
    seen = await scope.read_locked(session)
    model_rules.check_words(asked)
    ask = Ask(asked, resolve(asked, seen), actor, idempotency_key, automatic)
    judged = judging.judge_request(asked, ask.target.deployments, seen, await demand(session, seen), automatic)
    planned = plan.build(asked, ask.target, seen, judged, pace or Pace())
    earlier = await _earlier(session, ask, seen)
    if earlier is not None:
        return Outcome(planned, (await views(session, [earlier]))[0], refusal=_refusal_of(earlier))
    _check_start(asked, seen)
    if asked.dry_run:
        return Outcome(planned, None)
    if judged.violation is None:
        await _supersede(session, ask, seen)
    operation = await _store(session, ask, seen, judged)
    if operation.state is OperationState.REFUSED:
        return Outcome(planned, None, refusal=_refusal_of(operation))
    await commands.announce(session, ask.target.fleets)
    return Outcome(planned, (await views(session, [operation]))[0], is_new=True)


async def get(session: AsyncSession, operation_id: str) -> OperationView:
    """One operation.

    Raises:
        NotFound: there is no such operation.
    """
    operation = await repository.operation(session, operation_id)
    if operation is None:
        raise NotFound(f"there is no operation {operation_id!r}; meridian operations list names them")
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


async def _earlier(session: AsyncSession, ask: Ask, seen: Scope) -> Operation | None:
    """The operation that is asked for again: by its idempotency key, because it is under way, or because a datacenter
    that failed over already cannot fail over again."""
    asked, target = ask.request, ask.target
    repeated = await repository.by_idempotency_key(
        session, ask.actor, ask.idempotency_key) if ask.idempotency_key else None
    if repeated is not None:
        if not _is_same(repeated, asked, target):
            raise Conflict("this idempotency key was used for another operation; use a new one",
                           code="idempotency_conflict")
        return repeated
    claimants = await repository.claimants(session, target.resources)
    for held in claimants:
        if _gives_way(held, target):
            continue
        if not _is_same(held, asked, target):
            raise Conflict(f"a {held.kind.value} of {held.subject} is under way, {held.id}; "
                           "wait for it or cancel it first", code="operation_open")
        if asked.dry_run:
            return None
        await _escalate(session, ask, held)
        return held
    place = seen.datacenters.get(target.datacenter_id or "")
    if target.is_emergency and place and place.traffic_state is TrafficState.FAILED and not claimants:
        return None if asked.dry_run else await repository.newest_success(session, asked.kind, place.id)
    return None


def _gives_way(held: Operation, target: Target) -> bool:
    """A datacenter that is lost is not drained or restored any more: its failover takes over from there."""
    return target.is_emergency and held.kind is not OperationKind.FAILOVER


async def _supersede(session: AsyncSession, ask: Ask, seen: Scope) -> None:
    """Ends what gives way to an emergency, where it is; the failover finds the traffic there."""
    if not ask.target.is_emergency:
        return
    for held in await repository.claimants(session, ask.target.resources):
        held.error = f"superseded by a failover that {ask.actor} ordered"
        for step in (await repository.steps(session, [held.id]))[held.id]:
            if step.state is StepState.RUNNING:
                step.state = machine.move_step(step.state, StepEvent.FAIL)
                step.detail, step.finished_at = held.error, seen.now
        ends_badly = held.state is OperationState.ROLLING_BACK
        await advance.close(session, held, OperationEvent.FAIL if ends_badly else OperationEvent.CANCEL, ask.actor)


async def _escalate(session: AsyncSession, ask: Ask, held: Operation) -> None:
    """Makes a graceful failover hard when a hard one is asked for: what is open there is waited for no longer."""
    hard = FailoverMode.HARD.value
    if held.state is OperationState.ROLLING_BACK or held.arguments.get("mode") == hard \
            or _arguments(ask).get("mode") != hard:
        return
    held.arguments = {**held.arguments, "mode": hard}
    audit.record(session, actor=ask.actor, action=f"{held.kind.value}.escalate", target=advance.target_of(held),
                 reason=ask.request.reason, after={"operation": held.id, "mode": hard})
    await session.flush()
    await commands.announce(session, ask.target.fleets)


def _is_same(one: Operation, asked: OperationRequest, target: Target) -> bool:
    """Two failovers of a datacenter are one, however each was to be done."""
    same = (one.kind, one.datacenter_id) == (asked.kind, target.datacenter_id)
    return same and (asked.kind is OperationKind.FAILOVER or one.arguments == target.arguments)


def _check_start(asked: OperationRequest, seen: Scope) -> None:
    allowed = PLAYBOOKS[asked.kind].starts_from
    if asked.datacenter is not None and seen.datacenters[asked.datacenter].traffic_state not in allowed:
        state = seen.datacenters[asked.datacenter].traffic_state
        raise IllegalTransition(f"{asked.datacenter} is {state.value}; there is nothing to {asked.kind.value}")


async def _store(session: AsyncSession, ask: Ask, seen: Scope, judged: Judgement) -> Operation:
    """The operation, planned or refused, with its claims and its audit event."""
    asked, target, violation = ask.request, ask.target, judged.violation
    refused = violation is not None
    told = violation or next(iter(judged.overruled), None)
    operation = Operation(
        id=ids.new_id("op"), kind=asked.kind, datacenter_id=target.datacenter_id, subject=target.subject,
        arguments=_arguments(ask), undo={}, automatic=ask.automatic,
        state=OperationState.REFUSED if refused else OperationState.PLANNED, reason=asked.reason,
        requested_by=ask.actor, idempotency_key=ask.idempotency_key, forced=asked.force, created_at=seen.now,
        deadline_at=seen.now + timedelta(seconds=asked.deadline_s), finished_at=seen.now if refused else None,
        error=violation.message if violation else None, rule=told.rule if told else None,
        numbers=dict(told.numbers) if told else None)
    session.add(operation)
    await session.flush()
    session.add_all(
        repository.planned_step(operation.id, seq, one)
        for seq, one in enumerate(PLAYBOOKS[asked.kind].planned(target.deployments), start=1))
    if not refused:
        session.add_all(OperationClaim(resource=one, operation_id=operation.id) for one in target.resources)
    audit.record(
        session, actor=ask.actor, action=f"{asked.kind.value}.{'refuse' if refused else 'create'}",
        target=advance.target_of(operation), reason=asked.reason,
        after={"operation": operation.id, "forced": asked.force, "deadline_s": asked.deadline_s,
               "rule": operation.rule, "numbers": operation.numbers, "overruled": plan.overruled(judged),
               "order": operation.arguments})
    await session.flush()
    return operation


def _arguments(ask: Ask) -> Mapping[str, Any]:
    """The order as it is stored. Automation moves a lost datacenter's streams at once: edges did so before it."""
    asked, stored = ask.request, dict(ask.target.arguments)
    if asked.kind is OperationKind.FAILOVER and ask.automatic and asked.mode is None:
        stored["mode"] = FailoverMode.HARD.value
    return stored


def _refusal_of(operation: Operation) -> UnsafeChange | None:
    if operation.state is not OperationState.REFUSED:
        return None
    return UnsafeChange(operation.error or "refused", rule=operation.rule,
                        numbers={name: str(value) for name, value in (operation.numbers or {}).items()})
