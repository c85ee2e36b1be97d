"""Whether an edge takes an order that somebody hands it. Pure; the signature was checked before."""

from collections.abc import Sequence

from control_plane.contracts.override import MAX_ORDERS, MAX_SKEW_S, Override, OverrideAction, OverrideOutcome
from control_plane.contracts.snapshot import Snapshot
from edge_api.override.effect import models_left_without

Verdict = tuple[OverrideOutcome, str]


def judge(order: Override, edge: str, held: Sequence[Override], drained: Sequence[str], snapshot: Snapshot,
          now_s: float) -> Verdict:
    """What to do with `order`, and why in words. `held` is every order that was not forgotten yet, `drained` the
    datacenters that those in force keep requests from."""
    if order.edge != edge:
        return OverrideOutcome.WRONG_EDGE, f"the order is for edge {order.edge}, this is {edge}"
    same = next((other for other in held if other.id == order.id), None)
    if same is not None and same != order:
        return OverrideOutcome.OTHER_ORDER, f"another order has the id {order.id}"
    if order.issued_at_s > now_s + MAX_SKEW_S:
        return OverrideOutcome.NOT_YET, (f"the order is of {order.issued_at_s - now_s:.0f} s from now by this edge's "
                                         "clock: set the clocks right")
    if order.expires_at_s <= now_s:
        return OverrideOutcome.EXPIRED, (f"the order ended {now_s - order.expires_at_s:.0f} s ago by this edge's "
                                         "clock: give it again, or set the clocks right")
    if order.action is OverrideAction.DRAIN and is_lifted(order, held):
        return OverrideOutcome.LIFTED, f"a later order lifted this one: give a new one to drain {order.datacenter}"
    if same is not None:
        return OverrideOutcome.KNOWN, "this edge has the order already"
    if len(held) >= MAX_ORDERS:
        return OverrideOutcome.TOO_MANY, f"this edge keeps {MAX_ORDERS} orders that nobody has fetched yet"
    if order.action is OverrideAction.LIFT:
        return OverrideOutcome.TAKEN, f"no earlier order about {order.datacenter} counts any more"
    return _judge_drain(order, drained, snapshot)


def is_lifted(order: Override, held: Sequence[Override]) -> bool:
    """Whether a later order, or one of the same moment, took this one back. It counts even if its key is revoked since:
    what was drained once must not be drained again out of the blue."""
    return any(other.action is OverrideAction.LIFT and other.datacenter == order.datacenter
               and other.issued_at_s >= order.issued_at_s for other in held)


def _judge_drain(order: Override, drained: Sequence[str], snapshot: Snapshot) -> Verdict:
    known = [place.id for place in snapshot.datacenters]
    if order.datacenter not in known:
        return OverrideOutcome.UNKNOWN_DATACENTER, (
            f"this edge knows no datacenter {order.datacenter}; it knows {', '.join(known) or 'none'}")
    lost = [] if order.force else models_left_without(snapshot, {*drained, order.datacenter})
    if lost:
        return OverrideOutcome.LEAVES_NONE, (
            f"it would leave {', '.join(lost)} without any datacenter here: lift another override first, or sign the "
            "order with --force")
    return OverrideOutcome.TAKEN, f"{order.datacenter} gets no new requests from this edge"
