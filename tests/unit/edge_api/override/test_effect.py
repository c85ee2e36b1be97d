"""What orders make of a snapshot."""

from control_plane.contracts.snapshot import Snapshot, TrafficState, check_meaning
from edge_api.override.effect import apply, models_left_without
from tests.unit.edge_api.builders import MODEL, snapshot
from tests.unit.edge_api.override.orders import EAST, NORTH, NOW_S, order


def weights(of: Snapshot) -> dict[str, int]:
    return {place.id: place.weight for place in of.datacenters}


def test_without_orders_the_snapshot_is_itself() -> None:
    given = snapshot()
    assert apply(given, []).snapshot is given


def test_a_drained_datacenter_has_no_weight_and_the_others_keep_theirs() -> None:
    effect = apply(snapshot(), [order()])
    assert weights(effect.snapshot) == {EAST: 0, NORTH: 100}
    assert effect.snapshot.datacenters[0].state is TrafficState.DRAINED


def test_the_version_stays_so_that_edges_acknowledge_what_they_use() -> None:
    assert apply(snapshot(version=7), [order()]).snapshot.version == 7


def test_evacuation_is_told_with_it() -> None:
    place = apply(snapshot(), [order(evacuate=True)]).snapshot.datacenters[0]
    assert (place.evacuate, place.state, place.weight) == (True, TrafficState.FAILED, 0)


def test_one_order_of_two_that_evacuates_is_enough() -> None:
    effect = apply(snapshot(), [order("ovr_1", evacuate=True), order("ovr_2", issued_at_s=NOW_S + 5)])
    assert effect.snapshot.datacenters[0].evacuate


def test_an_order_that_would_leave_a_model_without_any_datacenter_is_suspended() -> None:
    effect = apply(snapshot(weights={EAST: 100, NORTH: 0}), [order()])
    assert (weights(effect.snapshot)[EAST], effect.suspended) == (100, frozenset({"ovr_1"}))


def test_of_two_orders_that_together_leave_none_the_older_counts() -> None:
    effect = apply(snapshot(), [order("ovr_2", datacenter=NORTH, issued_at_s=NOW_S + 1), order("ovr_1")])
    assert (weights(effect.snapshot), effect.suspended) == ({EAST: 0, NORTH: 100}, frozenset({"ovr_2"}))


def test_a_forced_order_leaves_none_and_says_why() -> None:
    effect = apply(snapshot(weights={EAST: 100}), [order(force=True)])
    (model,) = effect.snapshot.models
    assert model.unroutable_reason == f"an operator's override drains {EAST}"
    check_meaning(effect.snapshot)


def test_a_datacenter_that_the_snapshot_drained_already_loses_nobody_more() -> None:
    assert models_left_without(snapshot(weights={EAST: 0, NORTH: 100}, reason="drained"), [EAST]) == []


def test_a_route_whose_share_is_shifted_away_does_not_serve() -> None:
    given = snapshot()
    routes = [given.models[0].routes[0], given.models[0].routes[1].model_copy(update={"share_permille": 0})]
    model = given.models[0].model_copy(update={"routes": routes})
    assert models_left_without(given.model_copy(update={"models": [model]}), [EAST]) == [MODEL]


def test_an_order_about_a_datacenter_that_is_gone_changes_nothing() -> None:
    assert apply(snapshot(), [order(datacenter="gone-1")]).snapshot.datacenters == snapshot().datacenters
