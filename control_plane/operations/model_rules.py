"""What must hold before a shift or a rollout changes anything: the safety rules for a model's traffic. Pure.

Evaluated like the rules for datacenters: in the transaction that changes the state, with the datacenters locked.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from control_plane.capacity.headroom import Holding, headrooms, required
from control_plane.capacity.reservations import Reservation
from control_plane.contracts.operations import (
    OperationKind,
    OperationRequest,
    RolloutOrder,
    ShiftOrder,
    TrafficChange,
)
from control_plane.errors import Refusal
from control_plane.operations import scope
from control_plane.operations.guard import Unreadable, parse
from control_plane.operations.models import Operation, OperationStep
from control_plane.operations.safety import LAST_DATACENTER, REQUIRED_DATACENTERS, Provider, Rule, Violation
from control_plane.operations.scope import DeploymentRow, Scope
from control_plane.operations.shares import SHARES, Part, most_percent, percent_by_datacenter, shifted
from control_plane.operations.steps import StepName
from control_plane.topology.states import ROUTABLE, effective_weight

NOTHING_TO_SHIFT, TARGET_READY, SHARE_RANGE = "nothing_to_shift", "target_ready", "share_range"
AGENT_HEARD = "agent_heard"


@dataclass(frozen=True, slots=True)
class Supply:
    """What is held, and what must be: every deployment as capacity, the models' peaks, and what is reserved."""

    holdings: tuple[Holding, ...] = ()
    peaks: Mapping[str, int] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()


def check_words(asked: OperationRequest) -> None:
    """Makes sure that the conditions of a shift can be read.

    Raises:
        Refusal: they cannot; the message names the place.
    """
    if asked.shift is not None and asked.shift.abort_if is not None:
        try:
            parse(asked.shift.abort_if)
        except Unreadable as error:
            raise Refusal(str(error), code="bad_condition") from error


def check_step(operation: Operation, step: OperationStep, seen: Scope, supply: Supply) -> Violation | None:
    """What a step of a shift or rollout would break. A rollout is told even when it was forced: it then replaces under
    traffic what nobody else could hold."""
    begins = step.name is StepName.PREFLIGHT
    if operation.kind is OperationKind.SHIFT:
        if operation.forced or step.name is StepName.UNDO:
            return None
        order = ShiftOrder(**operation.arguments)
        return check_shift(order, seen, supply) if begins else check_shifting(
            order, operation.undo.get(SHARES, {}), seen, supply)
    cells = step.memory.get("baseline", {}).get("cells", ())
    return check_rollout(cells, seen, supply) if begins else check_cells(cells, seen, supply)


def check_shift(order: ShiftOrder, seen: Scope, supply: Supply) -> Violation | None:
    """The first rule that a shift would break."""
    source, target = _parts(order.model, order.source, seen), _parts(order.model, order.target, seen)
    if fault := _target_fault(order, seen):
        return Violation(TARGET_READY, f"{order.target} cannot take more of {order.model}: {fault}. Choose another "
                         "one, wait until it is ready, or repeat with --force",
                         {"model": order.model, "target": order.target})
    if not sum(one.pull for one in source):
        return Violation(NOTHING_TO_SHIFT, f"{order.source} gets nothing of {order.model}: there is nothing to shift",
                         {"model": order.model, "source": order.source})
    most = most_percent(source, target)
    if order.percent > most:
        return Violation(SHARE_RANGE, f"{order.target}'s weight is too small for {order.percent}% of what "
                         f"{order.source} gets: at most {most}%. Shift less, or give it a greater weight",
                         {"asked_percent": str(order.percent), "most_percent": str(most)})
    return check_shifting(order, {}, seen, supply)


def check_shifting(order: ShiftOrder, before: Mapping[str, int], seen: Scope, supply: Supply) -> Violation | None:
    """What must hold at each degree of a shift, too; `before` are the shares that it began with, if it moved some."""
    return _too_few(order, seen) or _target_short(order, traffic(order, seen, before)[order.target], supply)


def check_rollout(cells: Collection[str], seen: Scope, supply: Supply) -> Violation | None:
    """The first rule that a rollout to these cells would break."""
    heard = {fleet.id for fleet in seen.fleets if fleet.lease_live}
    for cell in seen.deployments:
        if cell.row.id in cells and cell.row.fleet_id not in heard:
            return Violation(AGENT_HEARD, f"the agent of {cell.row.fleet_id} is not heard from: nobody would replace "
                             f"{cell.row.id}", {"cell": cell.row.id, "fleet": cell.row.fleet_id})
    return check_cells(cells, seen, supply)


def check_cells(cells: Collection[str], seen: Scope, supply: Supply) -> Violation | None:
    """The first rule that would break if one of the cells served nothing for a while. One that could serve nothing now
    is not missed."""
    found = (_missed(cell, seen) or _short_without(cell, supply) for cell in seen.deployments
             if cell.row.id in cells and cell.row.phase in ROUTABLE and cell.replicas > 0)
    return next((fault for fault in found if fault), None)


def traffic(order: ShiftOrder, seen: Scope, before: Mapping[str, int] = MappingProxyType({}),
            ) -> dict[str, TrafficChange]:
    """What part of the model's new requests each datacenter gets before a shift and after it; `before` are the shares
    that it began with, where it moved some already."""
    parts = [replace(part, share_permille=before.get(part.deployment_id, part.share_permille))
             for place in seen.datacenters for part in _parts(order.model, place, seen)]
    after = shifted([one for one in parts if one.datacenter_id == order.source],
                    [one for one in parts if one.datacenter_id == order.target], order.percent)
    then = percent_by_datacenter(
        Part(one.deployment_id, one.datacenter_id, one.weight, after.get(one.deployment_id, one.share_permille))
        for one in parts)
    return {place: TrafficChange(before_percent=round(percent, 1), after_percent=round(then[place], 1))
            for place, percent in percent_by_datacenter(parts).items()}


def warnings(asked: OperationRequest, cells: Sequence[str], seen: Scope) -> list[str]:
    """What no rule forbids and an operator should know."""
    if isinstance(asked.rollout, RolloutOrder):
        return _rollout_warnings(asked.rollout, cells, seen)
    return []


def _rollout_warnings(order: RolloutOrder, cells: Sequence[str], seen: Scope) -> list[str]:
    found = []
    mine = [one for one in seen.deployments if one.row.id in cells]
    same = [one.row.id for one in mine if order.engine is not None and one.row.engine == order.engine
            and order.pools is None]
    if same:
        found.append(f"{', '.join(same)} {'has' if len(same) == 1 else 'have'} this specification already")
    if order.engine is not None and any(one.row.engine != order.engine for one in mine):
        found.append("a stream that breaks in a cell with the old specification goes on in one with the new only if "
                     "weights, tokenizer, chat template and parsers are equal")
    unready = [one.row.id for one in mine if one.row.phase not in ROUTABLE]
    if unready:
        found.append(f"{', '.join(unready)} serves nothing now")
    return found


def _parts(model: str, datacenter: str, seen: Scope) -> list[Part]:
    """The deployments of a model in a datacenter that have replicas."""
    place = seen.datacenters[datacenter]
    weight = effective_weight(place.traffic_state, place.weight, place.ramp_percent)
    return [Part(one.row.id, datacenter, weight, one.row.share_permille) for one in _held(model, datacenter, seen)]


def _held(model: str, datacenter: str, seen: Scope) -> list[DeploymentRow]:
    fleets = {fleet.id for fleet in seen.fleets_in(datacenter)}
    return [one for one in seen.deployments
            if one.row.model_id == model and one.row.fleet_id in fleets and one.replicas > 0]


def _target_fault(order: ShiftOrder, seen: Scope) -> str:
    place = seen.datacenters[order.target]
    weight = effective_weight(place.traffic_state, place.weight, place.ramp_percent)
    if not weight or order.target in seen.leaving:
        return f"it is {place.traffic_state.value}"
    held = _held(order.model, order.target, seen)
    if not held:
        return "it holds no replica of it"
    heard = {fleet.id for fleet in seen.fleets_in(order.target) if fleet.lease_live}
    faults = [scope.unready(one) or ("" if one.row.fleet_id in heard else f"{one.row.fleet_id} is not heard from")
              for one in held]
    return ", ".join(filter(None, faults))


def _too_few(order: ShiftOrder, seen: Scope) -> Violation | None:
    """Rule 1 for a shift that leaves its source without new requests: so many datacenters must serve all the same."""
    if order.percent < 100:
        return None
    wanted = max(REQUIRED_DATACENTERS, seen.required.get(order.model, REQUIRED_DATACENTERS))
    healthy = [one for one in scope.providers(seen).get(order.model, [])
               if one.healthy and one.datacenter_id != order.source]
    served = {one.datacenter_id for one in healthy} | {order.target}
    if len(served) >= wanted:
        return None
    return Violation(
        LAST_DATACENTER, f"{order.model} must keep {wanted} healthy datacenters, and would keep {len(served)}: all of "
        f"what {order.source} gets would go. Shift less, restore another one first, or repeat with --force",
        {"model": order.model, "healthy_after": str(len(served)), "required": str(wanted)})


def _target_short(order: ShiftOrder, change: TrafficChange, supply: Supply) -> Violation | None:
    """Rule 2 for a shift: the target holds 1.2 times its part of what must be served."""
    held = [one.requests for one in supply.holdings
            if one.model_id == order.model and one.datacenter_id == order.target and one.serves]
    peak, reserved = supply.peaks.get(order.model), sum(
        one.requests for one in supply.reservations if one.model_id == order.model)
    ready = sum(one or 0 for one in held)
    wanted = required(math.ceil(max(peak or 0, reserved) * change.after_percent / 100))
    if None in held or ready >= wanted:
        return None
    return Violation(
        Rule.HEADROOM, f"{order.target} would get {change.after_percent:g}% of the requests for {order.model}, "
        f"{wanted} at once with a margin, and holds {ready}. Add capacity first, shift less, or repeat with --force",
        {"model": order.model, "target": order.target, "ready": str(ready), "required": str(wanted),
         "peak": "unknown" if peak is None else str(peak), "reserved": str(reserved)})


def _short_without(cell: DeploymentRow, supply: Supply) -> Violation | None:
    """Rule 2 for a rollout: the others hold what must be served while a cell is replaced."""
    model = cell.row.model_id
    others = [replace(one, serves=one.serves and one.deployment_id != cell.row.id) for one in supply.holdings]
    found = headrooms(others, supply.peaks, supply.reservations).get(model)
    need = next((one for one in found.needs if one.is_short), None) if found else None
    if need is None:
        return None
    return Violation(
        Rule.HEADROOM, f"while {cell.row.id} is replaced {need.ready} requests at once would be held for {model}, "
        f"{need.required} must be. Add capacity first, or repeat with --force: it is then replaced under its traffic",
        {"model": model, "cell": cell.row.id, "ready_after": str(need.ready), "required": str(need.required),
         "peak": "unknown" if need.peak is None else str(need.peak), "reserved": str(need.reserved)})


def _missed(cell: DeploymentRow, seen: Scope) -> Violation | None:
    """Whether too few datacenters would serve the model without the cell."""
    model = cell.row.model_id
    places: Mapping[str, list[Provider]] = scope.providers(seen, without={cell.row.id})
    others = places.get(model, [])
    healthy = [place.datacenter_id for place in others if place.healthy]
    wanted = max(REQUIRED_DATACENTERS, seen.required.get(model, REQUIRED_DATACENTERS))
    if len(healthy) >= wanted:
        return None
    because = "; ".join(f"{place.datacenter_id} does not serve it" for place in others
                        if not place.healthy) or "no other cell holds it"
    words = (f"{model} must keep {wanted} healthy datacenters, and would keep {', '.join(healthy)} while {cell.row.id} "
             "is replaced" if healthy else f"{cell.row.id} is the last cell that serves {model}: {because}")
    return Violation(
        LAST_DATACENTER, f"{words}. Bring another one up first, "
        "or repeat with --force: it is then replaced under its traffic, worker by worker",
        {"model": model, "cell": cell.row.id, "healthy_after": str(len(healthy)), "required": str(wanted)})
