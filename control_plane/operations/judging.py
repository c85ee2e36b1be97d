"""Which safety rules bind which operation, over what was read in its transaction.

A drain must keep rules 1 to 3. A failover leaves what no longer serves, and edges left it before: only rule 1 binds it,
and that in its weakest form; its other figures are advice. An automatic operation must keep all that it can break, and
needs fresh reports (5) and no freeze (6); capacity that nobody knows forbids it, where it only warns an operator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from control_plane.capacity.headroom import Holding, ModelHeadroom, PoolCapacity, headrooms, requests_held
from control_plane.capacity.reservations import Reservation
from control_plane.contracts.operations import OperationKind, OperationRequest
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations import model_rules, safety, scope
from control_plane.operations.models import Operation
from control_plane.operations.safety import Place, Provider, Rule, Violation
from control_plane.operations.scope import DeploymentRow, Scope
from control_plane.topology.states import ROUTABLE


@dataclass(frozen=True, slots=True)
class Demand:
    """What must be served: the models' peaks of the last 30 minutes, and what is reserved."""

    peaks: Mapping[str, int] = field(default_factory=dict)
    reservations: Sequence[Reservation] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """Who wants what done to which datacenter, and what of the rules is overruled."""

    kind: OperationKind
    datacenter_id: str
    automatic: bool
    forced: bool
    override_reservations: bool
    onto: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """`broken` are the rules that forbid it, the first one is told; `overruled` those that force let pass. `after` is
    each model's headroom once it is over."""

    broken: tuple[Violation, ...] = ()
    overruled: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    after: Mapping[str, ModelHeadroom] = field(default_factory=dict)

    @property
    def violation(self) -> Violation | None:
        return self.broken[0] if self.broken else None


def wish_of(asked: OperationRequest, automatic: bool) -> Wish:
    """What a request wants."""
    return Wish(asked.kind, asked.datacenter or "", automatic, asked.force, asked.override_reservations,
                tuple(asked.onto or ()))


def wish_behind(operation: Operation) -> Wish:
    """What an operation was created for."""
    arguments = operation.arguments
    return Wish(operation.kind, operation.datacenter_id or "", operation.automatic, operation.forced,
                bool(arguments.get("override_reservations")), tuple(arguments.get("onto", ())))


def judge_request(asked: OperationRequest, cells: Sequence[str], seen: Scope, demand: Demand,
                  automatic: bool) -> Judgement:
    """What the rules say of what is asked; `cells` are the deployments that it is of."""
    if asked.datacenter is not None:
        return judge(wish_of(asked, automatic), seen, demand)
    held = supply(seen, demand)
    violation = (model_rules.check_shift(asked.shift, seen, held) if asked.shift
                 else model_rules.check_rollout(cells, seen, held))
    found = (violation,) if violation else ()
    return Judgement(overruled=found) if asked.force else Judgement(broken=found)


def supply(seen: Scope, demand: Demand) -> model_rules.Supply:
    """What the rules for a model's traffic reckon with."""
    return model_rules.Supply(tuple(holdings(seen)), demand.peaks, tuple(demand.reservations))


def judge(wish: Wish, seen: Scope, demand: Demand) -> Judgement:
    """What the rules say of an operation of a datacenter."""
    after = _after(wish, seen, demand)
    frozen = [one for one in [safety.check_frozen(seen.frozen)] if one] if wish.automatic else []
    if wish.kind is OperationKind.RESTORE:
        return Judgement(broken=tuple(frozen), after=after)
    providers = _considered(wish, scope.providers(seen))
    capacity = _capacity(wish, seen, demand, after, providers)
    away = safety.check_away(wish.datacenter_id, places(seen))
    if wish.kind is OperationKind.FAILOVER:
        last = safety.check_leaving(wish.datacenter_id, providers if wish.automatic else _believed(providers))
        binding, advice = [last, away if wish.automatic else None], [None if wish.automatic else away, *capacity]
    else:
        binding = [safety.check_leaving(wish.datacenter_id, providers, seen.required), *capacity, away]
        advice = []
    if wish.automatic:
        binding += [safety.check_telemetry(_ages_s(seen, wish.datacenter_id)), *frozen]
    broken = [one for one in binding if one]
    overruled = [one for one in broken if wish.forced or (
        wish.override_reservations and one.rule == Rule.RESERVED_HEADROOM)]
    return Judgement(
        broken=tuple(one for one in broken if one not in overruled), overruled=tuple(overruled), after=after,
        warnings=tuple([one.message.split(". ")[0] for one in advice if one] + _unknown(wish, providers, after)
                       + _not_named(wish, seen)))


def places(seen: Scope) -> list[Place]:
    """All datacenters, as rule 3 counts them."""
    return [Place(place.id, place.region_id, place.traffic_state is not TrafficState.ACTIVE or place.id in seen.leaving)
            for place in seen.datacenters.values()]


def served(wish: Wish, providers: Mapping[str, Sequence[Provider]]) -> list[str]:
    """The models that a datacenter serves now."""
    return [model_id for model_id, found in sorted(providers.items())
            if any(one.datacenter_id == wish.datacenter_id and one.serves for one in found)]


def at_risk(after: Mapping[str, ModelHeadroom]) -> dict[str, int]:
    """Reserved requests that what remains cannot hold, by model; none where nobody knows what it holds."""
    missing = {model_id: max(need.reserved - need.ready for need in one.needs if need.ready is not None)
               for model_id, one in after.items() if any(need.ready is not None for need in one.needs)}
    return {model_id: count for model_id, count in missing.items() if count > 0}


def holdings(seen: Scope, back: str = "") -> list[Holding]:
    """Every deployment as capacity; `back` is a datacenter that is counted as if it were active."""
    fleets = {fleet.id: fleet for fleet in seen.fleets}
    return [_holding(seen, one, fleets[one.row.fleet_id].datacenter_id, fleets[one.row.fleet_id].lease_live, back)
            for one in seen.deployments]


def _holding(seen: Scope, one: DeploymentRow, datacenter_id: str, is_heard: bool, back: str) -> Holding:
    place = seen.datacenters[datacenter_id]
    takes = (place.traffic_state is TrafficState.ACTIVE and place.id not in seen.leaving) or place.id == back
    return Holding(
        deployment_id=one.row.id, model_id=one.row.model_id, datacenter_id=place.id, region_id=place.region_id,
        requests=requests_held(PoolCapacity(pool.role, pool.ready_replicas, pool.max_inflight) for pool in one.pools),
        serves=takes and is_heard and one.row.phase in ROUTABLE and one.replicas > 0)


def _after(wish: Wish, seen: Scope, demand: Demand) -> dict[str, ModelHeadroom]:
    """Headroom of the models that the datacenter holds, once the operation is over."""
    models = seen.models_in(wish.datacenter_id)
    if wish.kind is OperationKind.RESTORE:
        held = holdings(seen, back=wish.datacenter_id)
    else:
        counted = set(wish.onto) or set(seen.datacenters)
        held = [one if one.datacenter_id in counted - {wish.datacenter_id} else replace(one, serves=False)
                for one in holdings(seen)]
    found = headrooms(held, demand.peaks, demand.reservations)
    return {model_id: found[model_id] for model_id in models if model_id in found}


def _capacity(wish: Wish, seen: Scope, demand: Demand, after: Mapping[str, ModelHeadroom],
              providers: Mapping[str, Sequence[Provider]]) -> list[Violation | None]:
    models = served(wish, providers)
    mine = {model_id: one for model_id, one in after.items() if model_id in models}
    bare = _after(wish, seen, replace(demand, reservations=()))
    short = safety.check_headroom(wish.datacenter_id, mine, {one: bare[one] for one in mine if one in bare})
    unknown = safety.check_known(wish.datacenter_id, mine) if wish.automatic else None
    return [short or unknown]


def _considered(wish: Wish, providers: dict[str, list[Provider]]) -> dict[str, list[Provider]]:
    """Those that may take the traffic: all, or the named ones."""
    if not wish.onto:
        return providers
    counted = {wish.datacenter_id, *wish.onto}
    return {model_id: [one for one in found if one.datacenter_id in counted] for model_id, found in providers.items()}


def _believed(providers: Mapping[str, Sequence[Provider]]) -> dict[str, list[Provider]]:
    """The same with every agent believed to be there: a failure that silences agents must not keep operators from
    leaving the datacenter that failed."""
    return {model_id: [replace(one, observed=True) for one in found] for model_id, found in providers.items()}


def _unknown(wish: Wish, providers: Mapping[str, Sequence[Provider]],
             after: Mapping[str, ModelHeadroom]) -> list[str]:
    models = [one for one in served(wish, providers) if one in after and after[one].total.ready is None]
    return [f"nobody knows what remains held of {', '.join(models)}: max_inflight or ready replicas are not known, so "
            "rule 2 cannot be judged"] if models else []


def _not_named(wish: Wish, seen: Scope) -> list[str]:
    """Edges choose by weight: naming some datacenters does not keep traffic from the others."""
    others = sorted(place.id for place in seen.datacenters.values() if place.traffic_state is TrafficState.ACTIVE
                    and place.id not in (wish.datacenter_id, *wish.onto))
    if not wish.onto or not others:
        return []
    return [f"{', '.join(others)} is not named and takes its part all the same: edges choose by weight"]


def _ages_s(seen: Scope, datacenter_id: str) -> list[float | None]:
    return [None if fleet.observed_at is None else (seen.now - fleet.observed_at).total_seconds()
            for fleet in seen.fleets if fleet.datacenter_id != datacenter_id]
