"""Shares: a deployment's part of its datacenter's weight for its model, and sessions that move only if they must."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.snapshot import SnapshotRoute
from edge_api.metrics import Metrics
from edge_api.routing.choose import FEW_REQUESTS, Chooser
from edge_api.routing.health import Health
from edge_api.routing.table import Route, RoutedModel, build_table
from tests.unit.edge_api.builders import MODEL, snapshot

NONE: frozenset[str] = frozenset()
SESSIONS = [f"session {n}" for n in range(150)]
shares = st.dictionaries(st.sampled_from(["us-a", "us-b", "eu-a", "ap-a"]), st.integers(0, 10_000), min_size=1)


def shared(by_deployment: dict[str, int], weights: dict[str, int] | None = None) -> RoutedModel:
    """A model whose deployments are named by datacenter and letter, each with its share."""
    weights = weights or {"us": 100, "eu": 100, "ap": 100}
    built = snapshot(weights=weights, reason="shifted away")
    routes = [
        SnapshotRoute(deployment_id=name, fleet_id=name, datacenter_id=name.split("-")[0], share_permille=share,
                      ingress_url=f"http://127.0.0.1:{9000 + at}")
        for at, (name, share) in enumerate(sorted(by_deployment.items()))]
    model = built.models[0].model_copy(update={"routes": routes})
    return build_table(built.model_copy(update={"models": [model]})).models[MODEL]


def homes(model: RoutedModel) -> dict[str, str]:
    chooser = Chooser(Health(ManualClock()), Metrics())
    chosen = {key: chooser.choose(model, key, NONE) for key in SESSIONS}
    return {key: route.deployment_id for key, route in chosen.items() if route is not None}


def weight_of(model: RoutedModel) -> dict[str, tuple[float, float]]:
    return {route.deployment_id: (route.weight, route.share) for route in model.routes}


def test_a_share_is_a_part_of_the_datacenters_weight() -> None:
    assert weight_of(shared({"us-a": 250, "eu-a": 1_750}, {"us": 100, "eu": 100})) == {
        "us-a": (25.0, 0.125), "eu-a": (175.0, 0.875)}


def test_fleets_of_one_datacenter_have_their_shares_of_its_weight() -> None:
    assert weight_of(shared({"us-a": 500, "us-b": 1_500, "eu-a": 1_000}, {"us": 100, "eu": 100})) == {
        "us-a": (25.0, 0.125), "us-b": (75.0, 0.375), "eu-a": (100.0, 0.5)}


def test_the_smallest_share_of_the_smallest_weight_is_not_none() -> None:
    assert weight_of(shared({"us-a": 1, "us-b": 0}, {"us": 1}))["us-a"] == (0.0005, 1.0)


def test_a_model_without_any_share_has_no_weight_anywhere() -> None:
    model = shared({"us-a": 0, "eu-a": 0})
    assert weight_of(model) == {"us-a": (0.0, 0.0), "eu-a": (0.0, 0.0)}
    assert homes(model) == {}


def test_a_deployment_without_a_share_gets_nothing_and_is_no_other_place() -> None:
    model = shared({"us-a": 1_000, "eu-a": 0})
    assert set(homes(model).values()) == {"us-a"}
    assert not Chooser(Health(ManualClock()), Metrics()).has_other(model, frozenset({"us"}))


def test_sessions_spread_by_share() -> None:
    counts = Counter(homes(shared({"us-a": 500, "us-b": 500, "eu-a": 1_500})).values())
    assert counts["eu-a"] / len(SESSIONS) == pytest.approx(0.75, abs=0.1)


def test_load_is_bounded_by_share() -> None:
    open_requests = {"us-a": 30, "eu-a": 30}
    chooser = Chooser(Health(ManualClock()), Metrics(), open_requests)
    model = shared({"us-a": 200, "eu-a": 1_800})
    places = {chooser.choose(model, key, NONE).deployment_id for key in SESSIONS}  # type: ignore[union-attr]
    assert open_requests["us-a"] > FEW_REQUESTS
    assert places == {"eu-a"}


def test_an_evacuated_datacenters_routes_say_so() -> None:
    built = snapshot(weights={"us": 0, "eu": 100})
    told = [place.model_copy(update={"evacuate": place.id == "us"}) for place in built.datacenters]
    routes: tuple[Route, ...] = build_table(built.model_copy(update={"datacenters": told})).models[MODEL].routes
    assert {route.datacenter_id: route.evacuate for route in routes} == {"us": True, "eu": False}


@given(shares, st.data())
def test_when_one_gets_less_only_sessions_of_its_own_move(before: dict[str, int], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(before)))
    less = before | {name: data.draw(st.integers(0, before[name]))}
    was, now = homes(shared(before)), homes(shared(less))
    assert all(now[key] == place for key, place in was.items() if place != name)


@given(shares, st.data())
def test_when_one_gets_more_sessions_only_move_there(before: dict[str, int], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(before)))
    more = before | {name: data.draw(st.integers(before[name], 10_000))}
    was, now = homes(shared(before)), homes(shared(more))
    assert all(place in (was.get(key), name) for key, place in now.items())


@given(st.integers(1, 10), st.integers(0, 1_000))
def test_a_shift_in_steps_moves_each_session_once_and_only_from_source_to_target(steps: int, moved: int) -> None:
    at = [homes(shared({"us-a": 1_000 - moved * step // steps, "eu-a": 1_000 + moved * step // steps}))
          for step in range(steps + 1)]
    for earlier, later in pairwise(at):
        assert {(earlier[key], later[key]) for key in SESSIONS if earlier[key] != later[key]} <= {("us-a", "eu-a")}
