"""The choice of a datacenter: stable, weighted, moving as little as it can, never refusing what might work."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.snapshot import SnapshotRoute, TrafficState
from edge_api.metrics import Metrics
from edge_api.routing.choose import Chooser
from edge_api.routing.health import Health
from edge_api.routing.table import Route, RoutedModel, build_table
from tests.unit.edge_api.builders import MODEL, snapshot

NONE: frozenset[str] = frozenset()
keys = st.text(min_size=1, max_size=40)
weights = st.dictionaries(
    st.sampled_from(["us-east-1", "us-west-2", "eu-north-1", "ap-south-1", "sa-east-1"]), st.integers(1, 10_000),
    min_size=2)


def model(**by_datacenter: int) -> RoutedModel:
    return weighted({name.replace("_", "-"): weight for name, weight in by_datacenter.items()})


def weighted(by_datacenter: dict[str, int]) -> RoutedModel:
    return build_table(snapshot(weights=by_datacenter, reason="drained")).models[MODEL]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def chooser(clock: ManualClock) -> Chooser:
    return Chooser(Health(clock), Metrics())


def fresh_chooser() -> Chooser:
    return Chooser(Health(ManualClock()), Metrics())


def chosen(chooser: Chooser, routed: RoutedModel, key: str, excluded: frozenset[str] = NONE) -> str | None:
    route = chooser.choose(routed, key, excluded)
    return route.datacenter_id if route else None


@given(weights, keys)
def test_a_session_always_finds_the_same_datacenter(by_datacenter: dict[str, int], key: str) -> None:
    routed = weighted(by_datacenter)
    assert chosen(fresh_chooser(), routed, key) == chosen(fresh_chooser(), routed, key)


@given(weights, keys, st.randoms(use_true_random=False))
def test_the_order_of_routes_does_not_matter(by_datacenter: dict[str, int], key: str, random: object) -> None:
    backwards = weighted(dict(reversed(by_datacenter.items())))
    assert fresh_chooser().choose(weighted(by_datacenter), key, NONE).datacenter_id == chosen(  # type: ignore[union-attr]
        fresh_chooser(), backwards, key)


@given(weights, st.lists(keys, min_size=1, max_size=50, unique=True))
def test_only_the_sessions_of_a_datacenter_that_leaves_move(by_datacenter: dict[str, int], sessions: list[str]) -> None:
    gone = next(iter(by_datacenter))
    drained = weighted(by_datacenter | {gone: 0})
    for key in sessions:
        before = chosen(fresh_chooser(), weighted(by_datacenter), key)
        after = chosen(fresh_chooser(), drained, key)
        assert after != gone
        assert before in (after, gone)


@given(weights, st.lists(keys, min_size=1, max_size=50, unique=True))
def test_when_a_weight_grows_sessions_only_move_towards_it(by_datacenter: dict[str, int], sessions: list[str]) -> None:
    grown = next(iter(by_datacenter))
    heavier = weighted(by_datacenter | {grown: 2 * by_datacenter[grown]})
    for key in sessions:
        before, after = chosen(fresh_chooser(), weighted(by_datacenter), key), chosen(fresh_chooser(), heavier, key)
        assert after in (before, grown)


@pytest.mark.parametrize("by_datacenter", [
    {"us-east-1": 100, "eu-north-1": 100, "ap-south-1": 100},
    {"us-east-1": 300, "eu-north-1": 100},
    {"us-east-1": 10_000, "eu-north-1": 2_500, "ap-south-1": 2_500},
])
def test_sessions_spread_by_weight(chooser: Chooser, by_datacenter: dict[str, int]) -> None:
    routed, sessions = weighted(by_datacenter), 20_000
    counts = Counter(chosen(chooser, routed, f"session {n}") for n in range(sessions))
    for datacenter, weight in by_datacenter.items():
        assert counts[datacenter] / sessions == pytest.approx(weight / sum(by_datacenter.values()), abs=0.015)


def test_sessions_of_a_lost_datacenter_spread_over_all_that_are_left(chooser: Chooser) -> None:
    routed, sessions = model(us_east_1=100, eu_north_1=100, ap_south_1=100), 6_000
    moved = [f"s{n}" for n in range(sessions) if chosen(chooser, routed, f"s{n}") == "us-east-1"]
    counts = Counter(chosen(chooser, routed, key, frozenset({"us-east-1"})) for key in moved)
    assert counts["eu-north-1"] / len(moved) == pytest.approx(0.5, abs=0.05)


def test_a_drained_datacenter_gets_nothing(chooser: Chooser) -> None:
    routed = model(us_east_1=0, eu_north_1=100)
    assert {chosen(chooser, routed, f"s{n}") for n in range(200)} == {"eu-north-1"}


def test_an_excluded_datacenter_gets_nothing(chooser: Chooser) -> None:
    routed = model(us_east_1=100, eu_north_1=100)
    assert {chosen(chooser, routed, f"s{n}", frozenset({"us-east-1"})) for n in range(200)} == {"eu-north-1"}


def test_nothing_is_chosen_when_all_are_excluded_or_drained(chooser: Chooser) -> None:
    assert chosen(chooser, model(us_east_1=100, eu_north_1=0), "s", frozenset({"us-east-1"})) is None


def test_a_failed_datacenter_is_avoided_and_then_tried_again(chooser: Chooser, clock: ManualClock) -> None:
    routed = model(us_east_1=10_000, eu_north_1=1)
    chooser.failed("us-east-1")
    assert chosen(chooser, routed, "s") == "eu-north-1"
    clock.advance(1.0)
    assert chosen(chooser, routed, "s") == "us-east-1"


def test_only_one_request_tries_a_datacenter_that_comes_back(chooser: Chooser, clock: ManualClock) -> None:
    routed = model(us_east_1=10_000, eu_north_1=1)
    chooser.failed("us-east-1")
    clock.advance(1.0)
    assert [chosen(chooser, routed, "s") for _ in range(3)] == ["us-east-1", "eu-north-1", "eu-north-1"]
    chooser.succeeded("us-east-1")
    assert chosen(chooser, routed, "s") == "us-east-1"


def test_when_all_are_ejected_ejections_are_ignored(chooser: Chooser) -> None:
    routed = model(us_east_1=100, eu_north_1=100)
    home = chosen(chooser, routed, "s")
    chooser.failed("us-east-1")
    chooser.failed("eu-north-1")
    assert chosen(chooser, routed, "s") == home


def test_the_only_datacenter_is_used_even_while_ejected(chooser: Chooser) -> None:
    chooser.failed("us-east-1")
    assert chosen(chooser, model(us_east_1=100), "s") == "us-east-1"


def test_panic_never_overrides_a_drain(chooser: Chooser) -> None:
    chooser.failed("eu-north-1")
    assert chosen(chooser, model(us_east_1=0, eu_north_1=100), "s") == "eu-north-1"


def test_ejections_and_panics_are_counted() -> None:
    metrics = Metrics()
    chooser = Chooser(Health(ManualClock()), metrics)
    chooser.failed("us-east-1")
    chooser.failed("us-east-1")
    chosen(chooser, model(us_east_1=100), "s")
    assert b'meridian_edge_ejections_total{datacenter="us-east-1"} 1.0' in metrics.text()
    assert b"meridian_edge_panic_choices_total 1.0" in metrics.text()


def test_two_fleets_of_one_datacenter_share_its_sessions(chooser: Chooser) -> None:
    built = snapshot(weights={"us-east-1": 100, "eu-north-1": 100})
    second = SnapshotRoute(deployment_id="us-east-1-b-glm", fleet_id="us-east-1-b", datacenter_id="us-east-1",
                           ingress_url="http://127.0.0.1:9100")
    both = built.models[0].model_copy(update={"routes": [*built.models[0].routes, second]})
    routed = build_table(built.model_copy(update={"models": [both]})).models[MODEL]
    routes = [chooser.choose(routed, f"s{n}", NONE) for n in range(4_000)]
    ports = Counter(route.port for route in routes if route and route.datacenter_id == "us-east-1")
    assert sum(ports.values()) / 4_000 == pytest.approx(0.5, abs=0.03)
    assert ports[9100] / sum(ports.values()) == pytest.approx(0.5, abs=0.05)


def test_the_route_says_where_and_in_which_state(chooser: Chooser) -> None:
    assert chooser.choose(model(eu_north_1=50), "s", NONE) == Route(
        "eu-north-1", "eu-north-1", TrafficState.ACTIVE, 50, "127.0.0.1", 9000, False, "eu-north-1-a-glm")
