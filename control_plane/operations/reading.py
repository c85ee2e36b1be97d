"""Reads all that a step decides by, in the transaction that applies what it decides."""

from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts.operations import FailoverMode, OperationKind
from control_plane.evidence import service as evidence
from control_plane.operations import judging, model_rules, repository, scope
from control_plane.operations.demand import demand
from control_plane.operations.facts import Facts, Memory, Pace, QualityCounts
from control_plane.operations.models import Operation, OperationStep
from control_plane.operations.safety import Violation
from control_plane.operations.scope import Scope
from control_plane.operations.steps import StepName
from control_plane.routing import repository as routing

GUARDED = frozenset({StepName.PREFLIGHT, StepName.RAMP, StepName.FAIL})
"""The steps of a datacenter's operation at which the safety rules are asked again."""

LEAVING = frozenset({OperationKind.DRAIN, OperationKind.FAILOVER})


async def read(session: AsyncSession, operation: Operation, step: OperationStep, seen: Scope, pace: Pace) -> Facts:
    """The facts of one look."""
    snapshot = await routing.caused_by(session, cause(operation.id)) or await routing.head(session)
    ordered = await repository.commands_of(session, operation.id)
    facts = Facts(
        now_s=seen.now.timestamp(), deadline_s=operation.deadline_at.timestamp(), snapshot=snapshot,
        edges=scope.edge_facts(seen.edges, operation.datacenter_id),
        violation=await _violation(session, operation, step, seen), forced=operation.forced,
        memory=Memory(**step.memory), pace=pace, undo=operation.undo, order=scope.order_of(operation),
        deployments=scope.deployment_facts(seen, operation, await repository.claims(session, operation.id), ordered),
        quality=await _quality(session, operation, step, seen))
    if operation.datacenter_id is None:
        return facts
    place = seen.datacenters[operation.datacenter_id]
    return replace(
        facts, datacenter_id=place.id, traffic_state=place.traffic_state, ramp_percent=place.ramp_percent,
        evacuate=place.evacuate, changed_at_s=place.changed_at.timestamp(), mode=_mode(operation),
        fleets=scope.fleet_facts(seen, operation, ordered))


def cause(operation_id: str) -> str:
    """What the snapshots of an operation are marked with."""
    return f"operation:{operation_id}"


async def _violation(session: AsyncSession, operation: Operation, step: OperationStep, seen: Scope) -> Violation | None:
    """The first rule that the operation would break now; null where force overruled it, but for a rollout's: forced, it
    replaces under traffic what nobody else could hold."""
    if operation.datacenter_id is None:
        return model_rules.check_step(operation, step, seen, judging.supply(seen, await demand(session, seen)))
    if operation.kind not in LEAVING or step.name not in GUARDED:
        return None
    return judging.judge(judging.wish_behind(operation), seen, await demand(session, seen)).violation


async def _quality(session: AsyncSession, operation: Operation, step: OperationStep,
                   seen: Scope) -> dict[str, QualityCounts]:
    """What edges counted since the operation began, where its step looks at it."""
    if operation.datacenter_id is None:
        return await evidence.quality_since(session, [operation.arguments["model"]], operation.created_at)
    if step.name is not StepName.RAMP:
        return {}
    return await evidence.quality_since(session, seen.models_in(operation.datacenter_id), operation.created_at)


def _mode(operation: Operation) -> FailoverMode | None:
    if operation.kind is not OperationKind.FAILOVER:
        return None
    return FailoverMode(operation.arguments.get("mode", FailoverMode.GRACEFUL))
