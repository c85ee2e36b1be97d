"""What an operation is of: its words, its datacenter, and what it has to itself while it is open."""

from dataclasses import dataclass
from typing import Any

from control_plane.contracts.operations import OF_A_DATACENTER, OperationKind, OperationRequest
from control_plane.errors import NotFound
from control_plane.operations.scope import Scope


@dataclass(frozen=True, slots=True)
class Target:
    """`deployments` are those that the operation changes, or whose traffic it moves, by id; `resources` are what it
    claims: an emergency claims the datacenter alone, so that no shift or rollout there keeps it waiting. `arguments`
    are the order as it is stored."""

    subject: str
    datacenter_id: str | None
    deployments: tuple[str, ...]
    fleets: tuple[str, ...]
    arguments: dict[str, Any]
    is_emergency: bool = False

    @property
    def resources(self) -> list[str]:
        place = [f"datacenter:{self.datacenter_id}"] if self.datacenter_id else []
        return place if self.is_emergency else [*place, *(f"deployment:{one}" for one in self.deployments)]


def resolve(asked: OperationRequest, seen: Scope) -> Target:
    """What `asked` is of.

    Raises:
        NotFound: something that it names is not there.
    """
    if asked.kind in OF_A_DATACENTER:
        return _datacenter(asked, seen)
    if asked.shift is not None:
        order = asked.shift
        _require_datacenters(seen, order.source, order.target)
        subject = f"{order.percent}% of {order.model} from {order.source} to {order.target}"
        return _deployments(seen, order.model, [order.source, order.target], subject, order.model_dump(mode="json"))
    assert asked.rollout is not None  # noqa: S101 - the request's own validation
    rollout = asked.rollout
    _require_datacenters(seen, *rollout.datacenters or ())
    where = f" in {', '.join(rollout.datacenters)}" if rollout.datacenters else ""
    return _deployments(seen, rollout.model, rollout.datacenters, f"{rollout.model}{where}",
                        rollout.model_dump(mode="json"))


def _datacenter(asked: OperationRequest, seen: Scope) -> Target:
    place = asked.datacenter or ""
    _require_datacenters(seen, place, *asked.onto or ())
    fleets = [fleet.id for fleet in seen.fleets_in(place)]
    return Target(
        subject=place, datacenter_id=place, fleets=tuple(fleets),
        deployments=tuple(one.row.id for one in seen.deployments if one.row.fleet_id in fleets),
        arguments=_said({"onto": asked.onto, "mode": asked.mode and asked.mode.value,
                         "override_reservations": asked.override_reservations}),
        is_emergency=asked.kind is OperationKind.FAILOVER)


def _said(options: dict[str, Any]) -> dict[str, Any]:
    """Those that were given."""
    return {name: value for name, value in options.items() if value}


def _deployments(seen: Scope, model: str, datacenters: list[str] | None, subject: str, order: dict[str, Any]) -> Target:
    """The deployments of a model, in the datacenters' order where some are named."""
    places = {fleet.id: fleet.datacenter_id for fleet in seen.fleets}
    mine = [one for one in seen.deployments if one.row.model_id == model]
    if not mine:
        known = ", ".join(sorted({one.row.model_id for one in seen.deployments})) or "none"
        raise NotFound(f"no deployment holds the model {model!r}; there are: {known}", code="unknown_model")
    chosen = [one for place in datacenters or sorted(seen.datacenters) for one in mine
              if places[one.row.fleet_id] == place]
    empty = [place for place in datacenters or () if place not in {places[one.row.fleet_id] for one in chosen}]
    if empty:
        raise NotFound(f"{', '.join(empty)} has no deployment of {model}", code="unknown_deployment")
    return Target(
        subject=subject, datacenter_id=None, deployments=tuple(one.row.id for one in chosen),
        fleets=tuple(sorted({one.row.fleet_id for one in chosen})), arguments=order)


def _require_datacenters(seen: Scope, *named: str) -> None:
    for name in named:
        if name not in seen.datacenters:
            known = ", ".join(seen.datacenters) or "none"
            raise NotFound(f"there is no datacenter {name!r}; there are {known}", code="unknown_datacenter")
