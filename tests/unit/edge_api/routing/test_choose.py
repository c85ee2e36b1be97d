"""The choice of a datacenter: stable, weighted, moving as little as it can, never refusing what might work."""

from collections import Counter
from dataclasses import replace
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.snapshot import SnapshotRoute, TrafficState
from edge_api.hot.services import RouteNeed
from edge_api.metrics import Metrics
from edge_api.routing.choose import FEW_REQUESTS, LOAD_BOUND, MARGIN_MS, Chooser
from edge_api.routing.cost import WARM_S
from edge_api.routing.health import LONGEST_COOL_DOWN_S, MIN_ERRORS, Health
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


def test_what_cannot_be_reached_is_left_however_much_weight_it_has(chooser: Chooser) -> None:
    chooser.failed("us-east-1")
    assert {chosen(chooser, model(us_east_1=10_000, eu_north_1=1), f"s{n}") for n in range(200)} == {"eu-north-1"}


def falter(chooser: Chooser, routed: RoutedModel, *datacenters: str) -> None:
    """Half of the requests break in each of these."""
    for route in routed.routes:
        if route.datacenter_id in datacenters:
            for _ in range(MIN_ERRORS):
                chooser.erred(route)


def test_what_falters_is_left_while_half_of_the_weight_is_steady(chooser: Chooser) -> None:
    routed = model(us_east_1=100, eu_north_1=100)
    falter(chooser, routed, "us-east-1")
    assert {chosen(chooser, routed, f"s{n}") for n in range(200)} == {"eu-north-1"}


def test_what_falters_is_used_when_less_is_steady(chooser: Chooser) -> None:
    routed = model(us_east_1=100, eu_north_1=100, ap_south_1=99)
    falter(chooser, routed, "us-east-1", "eu-north-1")
    assert {chosen(chooser, routed, f"s{n}") for n in range(200)} == {"us-east-1", "eu-north-1", "ap-south-1"}


def test_what_is_away_does_not_count_as_weight_that_could_be_steady(chooser: Chooser) -> None:
    routed = model(us_east_1=1_000, eu_north_1=100, ap_south_1=100)
    chooser.failed("us-east-1")
    falter(chooser, routed, "eu-north-1")
    assert {chosen(chooser, routed, f"s{n}") for n in range(200)} == {"ap-south-1"}


def test_one_deployment_falters_and_the_others_of_its_datacenter_do_not(chooser: Chooser) -> None:
    routed = model(us_east_1=100, eu_north_1=100)
    falter(chooser, routed, "us-east-1")
    others = [replace(route, deployment_id=f"{route.deployment_id}-other") for route in routed.routes]
    other = replace(routed, routes=tuple(others))
    assert {chosen(chooser, other, f"s{n}") for n in range(200)} == {"us-east-1", "eu-north-1"}


@pytest.mark.parametrize(("retry_after_s", "longest_s"), [(1.0, 1.2), (86_400.0, 1.2 * LONGEST_COOL_DOWN_S)])
def test_an_overloaded_datacenter_is_left_alone_for_a_while(
        chooser: Chooser, clock: ManualClock, retry_after_s: float, longest_s: float) -> None:
    routed = model(us_east_1=100, eu_north_1=100)
    chooser.overloaded(routed.routes[0], retry_after_s)
    assert {chosen(chooser, routed, f"s{n}") for n in range(200)} == {"eu-north-1"}
    clock.advance(longest_s)
    assert {chosen(chooser, routed, f"s{n}") for n in range(200)} == {"us-east-1", "eu-north-1"}


def test_when_all_are_overloaded_nobody_is_refused_for_it(chooser: Chooser) -> None:
    routed = model(us_east_1=100, eu_north_1=100)
    for route in routed.routes:
        chooser.overloaded(route, 10.0)
    assert chosen(chooser, routed, "s") is not None


@given(weights, st.data())
def test_panic_never_overrides_a_drain(by_datacenter: dict[str, int], data: st.DataObject) -> None:
    drained = data.draw(st.sets(st.sampled_from(sorted(by_datacenter))))
    routed = weighted(by_datacenter | dict.fromkeys(drained, 0))
    chooser = fresh_chooser()
    for datacenter in data.draw(st.sets(st.sampled_from(sorted(by_datacenter)))):
        chooser.failed(datacenter)
    falter(chooser, routed, *data.draw(st.sets(st.sampled_from(sorted(by_datacenter)))))
    for n in range(20):
        assert chosen(chooser, routed, f"s{n}") not in drained
    assert (chosen(chooser, routed, "s") is None) == (drained == set(by_datacenter))


@given(weights, st.data())
def test_a_pinned_region_is_never_left(by_datacenter: dict[str, int], data: st.DataObject) -> None:
    names = sorted(by_datacenter)  # each datacenter is its own region here
    regions = frozenset(data.draw(st.sets(st.sampled_from([*names, "nowhere"]), min_size=1)))
    routed, chooser = weighted(by_datacenter), fresh_chooser()
    for datacenter in data.draw(st.sets(st.sampled_from(names))):
        chooser.failed(datacenter)
    falter(chooser, routed, *data.draw(st.sets(st.sampled_from(names))))
    need = RouteNeed(data.draw(st.integers(0, 200_000)), regions)
    for n in range(20):
        route = chooser.choose(routed, f"s{n}", NONE, need)
        assert route.region in regions if route else not regions & set(names)


def test_a_pinned_request_waits_for_nobody_elsewhere(chooser: Chooser) -> None:
    routed = model(us_east_1=0, eu_north_1=100)
    assert chooser.choose(routed, "s", NONE, RouteNeed(0, frozenset({"us-east-1"}))) is None


def test_ejections_and_panics_are_counted() -> None:
    metrics = Metrics()
    chooser = Chooser(Health(ManualClock()), metrics)
    routed = model(us_east_1=100)
    chooser.failed("us-east-1")
    chooser.failed("us-east-1")
    chosen(chooser, routed, "s")
    falter(chooser, routed, "us-east-1")
    assert b'meridian_edge_ejections_total{datacenter="us-east-1"} 2.0' in metrics.text()
    assert b"meridian_edge_panic_choices_total 1.0" in metrics.text()


def two_fleets() -> RoutedModel:
    """Two fleets in us-east-1, one in eu-north-1."""
    built = snapshot(weights={"us-east-1": 100, "eu-north-1": 100})
    second = SnapshotRoute(deployment_id="us-east-1-b-glm", fleet_id="us-east-1-b", datacenter_id="us-east-1",
                           ingress_url="http://127.0.0.1:9100")
    both = built.models[0].model_copy(update={"routes": [*built.models[0].routes, second]})
    return build_table(built.model_copy(update={"models": [both]})).models[MODEL]


def test_two_fleets_of_one_datacenter_share_its_sessions(chooser: Chooser) -> None:
    routes = [chooser.choose(two_fleets(), f"s{n}", NONE) for n in range(4_000)]
    ports = Counter(route.port for route in routes if route and route.datacenter_id == "us-east-1")
    assert sum(ports.values()) / 4_000 == pytest.approx(0.5, abs=0.03)
    assert ports[9100] / sum(ports.values()) == pytest.approx(0.5, abs=0.05)


def test_a_lost_fleets_sessions_spread_by_weight_and_nobody_elses_move() -> None:
    health = Health(ManualClock())
    chooser, routed = Chooser(health, Metrics()), two_fleets()
    homes = {key: chooser.choose(routed, key, NONE) for key in (f"s{n}" for n in range(4_000))}
    lost = routed.routes[0]
    health.lost(lost.address)
    moved = Counter[str]()
    for key, home in homes.items():
        route = chooser.choose(routed, key, NONE)
        assert route is not None
        assert route.address != lost.address
        if home is lost:
            moved[route.deployment_id] += 1
        else:
            assert route == home
    assert moved["us-east-1-b-glm"] / moved.total() == pytest.approx(1 / 3, abs=0.05)


class TestHasOther:
    def test_another_that_can_be_reached_is_one(self, chooser: Chooser) -> None:
        assert chooser.has_other(model(us_east_1=100, eu_north_1=1), frozenset({"us-east-1"}))

    @pytest.mark.parametrize("need", [RouteNeed(0, frozenset({"us-east-1"})), RouteNeed(0, frozenset())])
    def test_one_outside_of_the_requests_regions_is_none(self, chooser: Chooser, need: RouteNeed) -> None:
        assert not chooser.has_other(model(us_east_1=100, eu_north_1=100), frozenset({"us-east-1"}), need)

    def test_a_drained_one_is_none(self, chooser: Chooser) -> None:
        assert not chooser.has_other(model(us_east_1=100, eu_north_1=0), frozenset({"us-east-1"}))

    def test_one_that_cannot_be_reached_is_none(self, chooser: Chooser) -> None:
        chooser.failed("eu-north-1")
        assert not chooser.has_other(model(us_east_1=100, eu_north_1=100), frozenset({"us-east-1"}))

    def test_one_that_is_just_coming_back_is_one(self) -> None:
        health, routed = Health(ManualClock()), model(us_east_1=100, eu_north_1=100)
        health.lost(routed.routes[1].address)
        health.recovered(routed.routes[1].address, "eu-north-1")
        health.clock.advance(0.1)  # type: ignore[attr-defined]
        assert Chooser(health, Metrics()).has_other(routed, frozenset({"us-east-1"}))


class TestBoundedLoad:
    @given(weights, st.lists(st.tuples(keys, st.booleans()), min_size=1, max_size=120))
    def test_nobody_has_more_than_its_share_and_a_quarter(
            self, by_datacenter: dict[str, int], requests: list[tuple[str, bool]]) -> None:
        routed, counts, open_now = weighted(by_datacenter), Counter[str](), list[str]()
        chooser = Chooser(Health(ManualClock()), Metrics(), counts)
        for key, one_ends in requests:
            route = chooser.choose(routed, key, NONE)
            assert route is not None
            counts[route.deployment_id] += 1
            open_now.append(route.deployment_id)
            bound = ceil(LOAD_BOUND * counts.total() * route.weight / sum(by_datacenter.values()))
            assert counts[route.deployment_id] <= max(FEW_REQUESTS, bound)
            if one_ends:
                counts[open_now.pop(0)] -= 1

    def test_a_single_busy_session_spills_to_the_others(self) -> None:
        routed, counts = model(us_east_1=100, eu_north_1=100), Counter[str]()
        chooser = Chooser(Health(ManualClock()), Metrics(), counts)
        for _ in range(1_000):
            route = chooser.choose(routed, "one", NONE)
            assert route is not None
            counts[route.deployment_id] += 1
        assert max(counts.values()) == pytest.approx(625, abs=2)

    def test_of_a_few_requests_none_moves(self) -> None:
        routed, counts = model(us_east_1=100, eu_north_1=100), Counter[str]()
        chooser = Chooser(Health(ManualClock()), Metrics(), counts)
        for _ in range(FEW_REQUESTS):
            route = chooser.choose(routed, "one", NONE)
            assert route is not None
            counts[route.deployment_id] += 1
        assert len(counts) == 1

    def test_what_is_open_at_other_deployments_does_not_matter(self) -> None:
        routed = model(us_east_1=100, eu_north_1=100)
        chooser = Chooser(Health(ManualClock()), Metrics(), {"us-east-1-a-qwen": 1_000})
        assert {chosen(chooser, routed, f"s{n}") for n in range(100)} == {"us-east-1", "eu-north-1"}

    def test_a_lost_datacenters_share_goes_to_the_rest(self) -> None:
        routed, counts = model(us_east_1=100, eu_north_1=100), Counter[str]()
        chooser = Chooser(Health(ManualClock()), Metrics(), counts)
        chooser.failed("us-east-1")
        for n in range(100):
            route = chooser.choose(routed, f"s{n}", NONE)
            assert route is not None
            counts[route.deployment_id] += 1
        assert counts == {"eu-north-1-a-glm": 100}


class TestHysteresis:
    """Two datacenters; sessions are at home in either, and leave only for a clear gain."""

    def turn(self, chooser: Chooser, routed: RoutedModel, key: str, prompt_tokens: int) -> str:
        route = chooser.choose(routed, key, NONE, RouteNeed(prompt_tokens))
        assert route is not None
        return route.datacenter_id

    @pytest.mark.parametrize("prompt_tokens", [20, 2_000])
    def test_a_near_datacenter_is_no_reason_to_leave_home(self, prompt_tokens: int) -> None:
        health, routed = Health(ManualClock()), model(us_east_1=100, eu_north_1=100)
        chooser = Chooser(health, Metrics())
        health.rtt_ms.update({routed.routes[0].address: 2.0, routed.routes[1].address: 180.0})
        assert {self.turn(chooser, routed, f"s{n}", prompt_tokens) for n in range(60)} == {"us-east-1", "eu-north-1"}

    def test_a_very_far_one_is(self) -> None:
        health, routed = Health(ManualClock()), model(us_east_1=100, eu_north_1=100)
        chooser = Chooser(health, Metrics())
        health.rtt_ms.update({routed.routes[0].address: 2.0, routed.routes[1].address: 2.0 + 2 * MARGIN_MS})
        assert {self.turn(chooser, routed, f"s{n}", 20) for n in range(60)} == {"us-east-1"}

    def test_a_long_session_stays_where_its_prefix_is_when_home_comes_back(self, clock: ManualClock) -> None:
        chooser, routed = Chooser(Health(clock), Metrics()), model(us_east_1=100, eu_north_1=100)
        home = self.turn(chooser, routed, "s", 140_000)
        chooser.failed(home)
        away = self.turn(chooser, routed, "s", 146_000)
        assert away != home
        chooser.succeeded(home)
        clock.advance(30)
        assert self.turn(chooser, routed, "s", 152_000) == away

    def test_a_short_one_returns_at_once(self, clock: ManualClock) -> None:
        chooser, routed = Chooser(Health(clock), Metrics()), model(us_east_1=100, eu_north_1=100)
        home = self.turn(chooser, routed, "s", 200)
        chooser.failed(home)
        assert self.turn(chooser, routed, "s", 220) != home
        chooser.succeeded(home)
        assert self.turn(chooser, routed, "s", 240) == home

    def test_a_long_one_returns_once_its_prefix_is_cold(self, clock: ManualClock) -> None:
        chooser, routed = Chooser(Health(clock), Metrics()), model(us_east_1=100, eu_north_1=100)
        home = self.turn(chooser, routed, "s", 140_000)
        chooser.failed(home)
        self.turn(chooser, routed, "s", 146_000)
        chooser.succeeded(home)
        clock.advance(WARM_S + 1)
        assert self.turn(chooser, routed, "s", 152_000) == home

    def test_a_drain_moves_a_long_session_at_its_next_turn(self, clock: ManualClock) -> None:
        chooser, routed = Chooser(Health(clock), Metrics()), model(us_east_1=100, eu_north_1=100)
        home = self.turn(chooser, routed, "s", 140_000)
        weights = {"us-east-1": 100, "eu-north-1": 100} | {home: 0}
        assert self.turn(chooser, weighted(weights), "s", 146_000) != home

    @given(st.randoms(use_true_random=False))
    def test_a_round_trip_that_wanders_moves_nobody(self, random: Random) -> None:
        health, routed = Health(ManualClock()), model(us_east_1=100, eu_north_1=100)
        chooser, places = Chooser(health, Metrics()), dict[str, set[str]]()
        for _ in range(20):
            for route in routed.routes:
                health.rtt_ms[route.address] = random.uniform(1.0, MARGIN_MS)
            for n in range(5):
                places.setdefault(f"s{n}", set()).add(self.turn(chooser, routed, f"s{n}", 500))
        assert all(len(seen) == 1 for seen in places.values())

    @pytest.mark.parametrize("datacenters", [2, 3])
    def test_agents_turns_find_their_prefix(self, clock: ManualClock, datacenters: int) -> None:
        """50 agents, 40 turns each, 6,000 tokens a turn, in random order: nearly every turn but the first is warm."""
        names = ["us-east-1", "eu-north-1", "ap-south-1"][:datacenters]
        chooser, routed = Chooser(Health(clock), Metrics()), weighted(dict.fromkeys(names, 100))
        random, last, moves = Random(7), dict[str, str](), 0
        turns = [f"agent {n}" for n in range(50) for _ in range(40)]
        random.shuffle(turns)
        tokens = Counter[str]()
        for key in turns:
            tokens[key] += 6_000
            place = self.turn(chooser, routed, key, tokens[key])
            moves += last.setdefault(key, place) != place
            last[key] = place
            clock.advance(random.expovariate(3 * datacenters / 4))
        assert moves / len(turns) <= 0.005


def test_the_route_says_where_and_in_which_state(chooser: Chooser) -> None:
    assert chooser.choose(model(eu_north_1=50), "s", NONE) == Route(
        "eu-north-1", "eu-north-1", TrafficState.ACTIVE, 50, "127.0.0.1", 9000, False, "eu-north-1-a-glm")
