"""The plan of an operation: what it touches, what it does, and what then remains. Nothing here changes anything."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from control_plane.capacity.headroom import ModelHeadroom
from control_plane.contracts.operations import Headroom, OperationKind, OperationPlan, OperationRequest
from control_plane.contracts.problem import Problem
from control_plane.contracts.snapshot import TrafficState
from control_plane.errors import UnsafeChange
from control_plane.operations import judging, model_rules, safety, scope
from control_plane.operations.facts import Pace
from control_plane.operations.judging import Judgement
from control_plane.operations.playbooks import PLAYBOOKS
from control_plane.operations.playbooks.playbook import StepPlan
from control_plane.operations.safety import Provider, Violation
from control_plane.operations.scope import Scope
from control_plane.operations.target import Target
from control_plane.routing.models import Edge
from control_plane.topology.models import Datacenter


def build(asked: OperationRequest, target: Target, seen: Scope, judged: Judgement, pace: Pace) -> OperationPlan:
    """The plan of what is asked."""
    models = sorted({one.row.model_id for one in seen.deployments if one.row.id in target.deployments})
    held, book = scope.providers(seen), PLAYBOOKS[asked.kind]
    place = seen.datacenters.get(asked.datacenter or "")
    live = [edge for edge in seen.edges
            if edge.last_seen_at > seen.now - timedelta(seconds=pace.edge_excused_after_s)]
    return OperationPlan(
        kind=asked.kind, subject=target.subject, datacenter=asked.datacenter,
        traffic_state=place.traffic_state if place else None,
        steps=[_in_plan(step) for step in book.planned(target.deployments)],
        expected_s={name.value: seconds for name, seconds in book.expects(pace).items()}, models=models,
        **_counts(live, place), remaining_datacenters={
            model: _serving_after(asked, seen, model, held.get(model, [])) for model in models},
        after={model: _headroom(one) for model, one in judged.after.items()},
        traffic=model_rules.traffic(asked.shift, seen) if asked.shift else {},
        reserved_at_risk={} if asked.kind is OperationKind.RESTORE else judging.at_risk(judged.after),
        warnings=[*judged.warnings, *_calm(place, seen, pace), *_already(asked, place),
                  *model_rules.warnings(asked, target.deployments, seen)],
        refusal=problem(judged.violation) if judged.violation else None)


def problem(violation: Violation) -> Problem:
    """A refusal as it is told."""
    return Problem(code=UnsafeChange.code, message=violation.message, rule=violation.rule, numbers=violation.numbers)


def _in_plan(step: StepPlan) -> str:
    return f"{step.name.value} {step.detail}".rstrip()


def _counts(live: Sequence[Edge], place: Datacenter | None) -> dict[str, Any]:
    """What live edges have there; unknown when nobody is there to tell."""
    def of(counts: str) -> int | None:
        if place is None or not live:
            return None
        return sum(int(getattr(edge, counts).get(place.id, 0)) for edge in live)

    return {name: of(name) for name in ("open_requests", "open_streams", "sessions")}


def _headroom(one: ModelHeadroom) -> Headroom:
    """A model's tightest need."""
    need = one.tightest
    return Headroom(ready=need.ready, peak=need.peak if need.peak is not None else one.total.peak,
                    reserved=need.reserved, headroom=need.headroom)


def _calm(place: Datacenter | None, seen: Scope, pace: Pace) -> list[str]:
    if place is None:
        return []
    left_s = pace.flap_wait_s - (seen.now - place.changed_at).total_seconds()
    return [f"waits {left_s:.1f} s first: two changes of {place.id}'s traffic are at least {pace.flap_wait_s:g} s apart"
            ] if left_s > 0 else []


def _already(asked: OperationRequest, place: Datacenter | None) -> list[str]:
    if asked.kind is not OperationKind.FAILOVER or place is None or place.traffic_state is not TrafficState.FAILED:
        return []
    return [f"{place.id} is failed already; meridian restore {place.id} brings it back"]


def _serving_after(asked: OperationRequest, seen: Scope, model: str, places: Sequence[Provider]) -> list[str]:
    """Who serves a model once the operation is over: without the datacenter, or with it again."""
    others = safety.remaining_datacenters(asked.datacenter or "", places)
    returns = asked.kind is OperationKind.RESTORE and model in seen.models_in(asked.datacenter or "", wanted=True)
    return sorted([*others, asked.datacenter or ""]) if returns else others


def overruled(judged: Judgement) -> list[Mapping[str, Any]]:
    """What force let pass, as the audit log keeps it."""
    return [{"rule": one.rule, "numbers": one.numbers} for one in judged.overruled]
