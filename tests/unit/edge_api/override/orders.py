"""Orders and snapshots for the tests of overrides."""

from typing import Any

from control_plane.contracts.override import Override, OverrideAction, SignedOverride
from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import OperatorKey, Snapshot
from tests.unit.edge_api.builders import snapshot

EDGE = "edge_1"
NOW_S = 1_800_000_000.0
EAST, NORTH = "us-east-1", "eu-north-1"


def order(order_id: str = "ovr_1", **changes: Any) -> Override:
    """An order to drain us-east-1 for an hour, of now."""
    told: dict[str, Any] = {"id": order_id, "action": OverrideAction.DRAIN, "datacenter": EAST, "edge": EDGE,
                            "reason": "it burns", "issued_at_s": NOW_S, "ttl_s": 3_600.0}
    return Override(**(told | changes))


def lift(order_id: str = "ovr_lift", **changes: Any) -> Override:
    """An order to take back all about us-east-1, of a second later."""
    return order(order_id, **({"action": OverrideAction.LIFT, "ttl_s": 600.0, "issued_at_s": NOW_S + 1} | changes))


def known_to(key: SigningKey | None, weights: dict[str, int] | None = None, version: int = 1) -> Snapshot:
    """A snapshot that knows an operator's key, or none."""
    keys = [OperatorKey(key_id=key.public.key_id, public_key=key.public.text, name="olga")] if key else []
    return snapshot(version=version, weights=weights, reason=None if weights is None else "drained").model_copy(
        update={"operator_keys": keys})


def sealed(key: SigningKey, **changes: Any) -> SignedOverride:
    return SignedOverride.seal(order(**changes), key)
