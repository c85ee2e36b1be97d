"""Which snapshots an edge may use."""

import base64
from decimal import Decimal
from typing import Any

import pytest

from control_plane.contracts.pricing import Price
from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import (
    SignedSnapshot,
    Snapshot,
    SnapshotDatacenter,
    SnapshotModel,
    SnapshotRefused,
    SnapshotRoute,
    TrafficState,
    check_meaning,
    is_newer,
)

KEY = SigningKey.generate()


def snapshot(weight: int = 100, reason: str | None = None, datacenter_id: str = "dc-1",
             state: TrafficState = TrafficState.ACTIVE, **changes: Any) -> Snapshot:
    model = SnapshotModel(
        id="m/x", display_name="X", created_s=1, owned_by="m", context_window=10, max_output_tokens=5,
        price=Price(version="p", input_usd=Decimal(1), cached_input_usd=Decimal(0), output_usd=Decimal(2)),
        routes=[SnapshotRoute(deployment_id="d", fleet_id="f", datacenter_id=datacenter_id, ingress_url="http://h:1")],
        unroutable_reason=reason)
    datacenter = SnapshotDatacenter(id="dc-1", region="r", state=state, weight=weight)
    fields: dict[str, Any] = {
        "lineage": 1, "version": 1, "built_at_s": 0.0, "datacenters": [datacenter], "models": [model]}
    return Snapshot(**fields | changes)


def test_a_sealed_snapshot_opens_with_the_key_that_sealed_it() -> None:
    sealed = SignedSnapshot.seal(snapshot(), KEY)
    again = SignedSnapshot.model_validate_json(sealed.model_dump_json())
    assert again.open([SigningKey.generate().public, KEY.public]) == snapshot()


def test_a_snapshot_of_an_unknown_key_is_refused() -> None:
    with pytest.raises(SnapshotRefused, match="unknown key"):
        SignedSnapshot.seal(snapshot(), KEY).open([SigningKey.generate().public])


@pytest.mark.parametrize("change", [{"body": "{}"}, {"signature": "AAAA"}, {"signature": "!"}])
def test_a_changed_snapshot_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(SnapshotRefused):
        SignedSnapshot.seal(snapshot(), KEY).model_copy(update=change).open([KEY.public])


def test_a_signed_body_of_the_wrong_shape_is_refused() -> None:
    body = '{"lineage":1}'
    sealed = SignedSnapshot.seal(snapshot(), KEY)
    forged = sealed.model_copy(update={
        "body": body, "signature": base64.urlsafe_b64encode(KEY.sign(body.encode())).decode()})
    with pytest.raises(SnapshotRefused, match="malformed"):
        forged.open([KEY.public])


def test_a_model_lost_without_a_reason_is_refused_and_with_one_accepted() -> None:
    with pytest.raises(SnapshotRefused, match="no routable datacenter and no reason"):
        check_meaning(snapshot(weight=0, state=TrafficState.DRAINED))
    check_meaning(snapshot(weight=0, state=TrafficState.DRAINED, reason="every datacenter is drained"))


@pytest.mark.parametrize("weight", [-1, 10_001])
def test_a_weight_out_of_range_is_refused(weight: int) -> None:
    with pytest.raises(SnapshotRefused, match="weight"):
        check_meaning(snapshot(weight=weight))


def test_a_route_to_an_unknown_datacenter_is_refused() -> None:
    with pytest.raises(SnapshotRefused, match="unknown datacenter nowhere"):
        check_meaning(snapshot(datacenter_id="nowhere"))


@pytest.mark.parametrize(("default", "right"), [(None, True), (1, True), (5, True), (0, False), (6, False)])
def test_a_default_limit_is_within_the_models_limit(default: int | None, right: bool) -> None:
    model = snapshot().models[0].model_copy(update={"default_max_tokens": default})
    if right:
        check_meaning(snapshot(models=[model]))
        return
    with pytest.raises(SnapshotRefused, match="model m/x has a default limit"):
        check_meaning(snapshot(models=[model]))


def test_a_snapshot_without_models_means_something() -> None:
    check_meaning(snapshot(models=[], datacenters=[]))


@pytest.mark.parametrize(("candidate", "current", "newer"), [
    ((1, 2), (1, 1), True), ((1, 1), (1, 1), False), ((1, 1), (1, 2), False),
    ((2, 1), (1, 9), True), ((1, 9), (2, 1), False),
])
def test_versions_are_compared_within_their_lineage(
        candidate: tuple[int, int], current: tuple[int, int], newer: bool) -> None:
    first, second = (snapshot(lineage=lineage, version=version) for lineage, version in (candidate, current))
    assert is_newer(first, second) is newer
    assert is_newer(first, None)
