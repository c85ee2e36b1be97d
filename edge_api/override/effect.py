"""What orders make of a snapshot. Pure.

An order that is not forced never takes a model's last datacenter, whatever the snapshot or other orders have done since
it was given: then the snapshot counts, and the order is suspended.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from control_plane.contracts.override import Override
from control_plane.contracts.snapshot import Snapshot, SnapshotDatacenter, SnapshotModel, TrafficState


@dataclass(frozen=True, slots=True)
class Effect:
    """The snapshot to route by, and the ids of the orders that do not count for now."""

    snapshot: Snapshot
    suspended: frozenset[str]


def apply(snapshot: Snapshot, drains: Iterable[Override]) -> Effect:
    """What is left of `snapshot` under `drains`, the oldest order first."""
    drained: dict[str, bool] = {}
    suspended = set()
    for order in sorted(drains, key=lambda order: (order.issued_at_s, order.id)):
        if not order.force and models_left_without(snapshot, drained.keys() | {order.datacenter}):
            suspended.add(order.id)
        else:
            drained[order.datacenter] = drained.get(order.datacenter, False) or order.evacuate
    if not drained:
        return Effect(snapshot, frozenset(suspended))
    lost = set(models_left_without(snapshot, drained.keys()))
    return Effect(snapshot.model_copy(update={
        "datacenters": [_drained(place, drained[place.id]) if place.id in drained else place
                        for place in snapshot.datacenters],
        "models": [_unroutable(model, sorted(drained)) if model.id in lost else model for model in snapshot.models],
    }), frozenset(suspended))


def models_left_without(snapshot: Snapshot, drained: Iterable[str]) -> Sequence[str]:
    """The models that `snapshot` serves and that no datacenter outside `drained` serves."""
    gone = set(drained)
    serving = {place.id for place in snapshot.datacenters if place.weight > 0}
    return [model.id for model in snapshot.models
            if _is_served(model, serving) and not _is_served(model, serving - gone)]


def _is_served(model: SnapshotModel, datacenters: set[str]) -> bool:
    return any(route.datacenter_id in datacenters and route.share_permille for route in model.routes)


def _drained(place: SnapshotDatacenter, evacuate: bool) -> SnapshotDatacenter:
    return place.model_copy(update={
        "state": TrafficState.FAILED if evacuate else TrafficState.DRAINED, "weight": 0,
        "evacuate": place.evacuate or evacuate})


def _unroutable(model: SnapshotModel, drained: list[str]) -> SnapshotModel:
    return model.model_copy(update={
        "unroutable_reason": f"an operator's override drains {', '.join(drained)}"})
