"""What a request would wait for: the way, the queue and its uncached prompt, in milliseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.snapshot import TrafficState
from edge_api.routing.cost import MAX_QUEUE_S, MAX_SESSIONS, WARM_S, Costs
from edge_api.routing.health import Health
from edge_api.routing.table import ASSUMED_PREFILL_TOKENS_PER_S, Route


def route(name: str, prefill_tokens_per_s: float | None = None, share: float = 0.5) -> Route:
    return Route(name, name, TrafficState.ACTIVE, 100, name, 8000, False, f"{name}-glm",
                 EngineFacts(prefill_tokens_per_s=prefill_tokens_per_s), share)


HERE, THERE = route("here", 8_000), route("there", 8_000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health(clock)


@pytest.fixture
def costs(health: Health) -> Costs:
    return Costs(health)


def test_nothing_known_and_nothing_asked_costs_nothing(costs: Costs) -> None:
    assert costs.ms(HERE, "s", 0) == 0.0


def test_the_way_is_the_round_trip(costs: Costs, health: Health) -> None:
    health.rtt_ms[HERE.address] = 12.5
    assert (costs.ms(HERE, "s", 0), costs.ms(THERE, "s", 0)) == (12.5, 0.0)


def test_an_unknown_prompt_is_prefilled_wholly(costs: Costs) -> None:
    assert costs.ms(HERE, "s", 80_000) == pytest.approx(10_000)


def test_where_nobody_measured_the_rate_it_is_assumed(costs: Costs) -> None:
    assert costs.ms(route("x"), "s", 20_000) == pytest.approx(1_000 * 20_000 / ASSUMED_PREFILL_TOKENS_PER_S)


def test_a_turn_prefills_what_it_adds_where_the_last_one_was(costs: Costs, clock: ManualClock) -> None:
    costs.note(HERE, 2, "s", 80_000)
    clock.advance(MAX_QUEUE_S)
    assert costs.ms(HERE, "s", 88_000) == pytest.approx(1_000)
    assert costs.ms(THERE, "s", 88_000) == pytest.approx(11_000)
    assert costs.ms(HERE, "another", 88_000) == pytest.approx(11_000)


def test_only_the_last_place_is_remembered(costs: Costs, clock: ManualClock) -> None:
    costs.note(HERE, 2, "s", 80_000)
    costs.note(THERE, 2, "s", 80_000)
    clock.advance(MAX_QUEUE_S)
    assert costs.ms(HERE, "s", 80_000) == pytest.approx(10_000)
    assert costs.ms(THERE, "s", 80_000) == 0.0


def test_a_prompt_that_shrank_costs_nothing_less(costs: Costs, clock: ManualClock) -> None:
    costs.note(HERE, 2, "s", 80_000)
    clock.advance(MAX_QUEUE_S)
    assert costs.ms(HERE, "s", 10_000) == 0.0


def test_a_prefix_grows_cold(costs: Costs, clock: ManualClock) -> None:
    costs.note(HERE, 2, "s", 80_000)
    clock.advance(WARM_S)
    assert costs.ms(HERE, "s", 80_000) == 0.0
    clock.advance(1)
    assert costs.ms(HERE, "s", 80_000) == pytest.approx(10_000)


def test_what_was_sent_there_is_a_queue_that_drains(costs: Costs, clock: ManualClock) -> None:
    costs.note(HERE, 2, "s", 8_000)
    assert costs.ms(HERE, "another", 0) == pytest.approx(1_000)
    clock.advance(0.75)
    assert costs.ms(HERE, "another", 0) == pytest.approx(250)
    clock.advance(10)
    assert costs.ms(HERE, "another", 0) == 0.0


def test_queues_add_up_to_a_bound(costs: Costs) -> None:
    costs.note(HERE, 2, "s", 16_000)
    costs.note(HERE, 2, "t", 16_000)
    assert costs.ms(HERE, "another", 0) == pytest.approx(4_000)
    costs.note(HERE, 2, "u", 1_000_000)
    assert costs.ms(HERE, "another", 0) == pytest.approx(1_000 * MAX_QUEUE_S)


def test_a_cached_prefix_does_not_queue_again(costs: Costs, clock: ManualClock) -> None:
    costs.note(HERE, 2, "s", 80_000)
    clock.advance(MAX_QUEUE_S)
    costs.note(HERE, 2, "s", 88_000)
    assert costs.ms(HERE, "another", 0) == pytest.approx(1_000)


def test_a_heavier_datacenter_drains_faster(costs: Costs) -> None:
    heavy, light = route("heavy", 8_000, share=0.75), route("light", 8_000, share=0.25)
    costs.note(heavy, 2, "s", 12_000)
    costs.note(light, 2, "t", 4_000)
    assert costs.ms(heavy, "another", 0) == pytest.approx(costs.ms(light, "another", 0)) == pytest.approx(1_000)


def test_the_sessions_served_longest_ago_are_forgotten_first(costs: Costs, clock: ManualClock) -> None:
    for n in range(MAX_SESSIONS):
        costs.note(HERE, 2, f"s{n}", 8_000)
    costs.note(HERE, 2, "s0", 16_000)
    costs.note(HERE, 2, "one more", 8_000)
    clock.advance(MAX_QUEUE_S)
    assert costs.ms(HERE, "s0", 16_000) == 0.0
    assert costs.ms(HERE, "s1", 8_000) == pytest.approx(1_000)
    assert costs.ms(HERE, "s2", 8_000) == 0.0


@given(st.lists(st.tuples(st.sampled_from([HERE, THERE]), st.sampled_from("abc"), st.integers(0, 200_000),
                          st.floats(0, 100)), max_size=30), st.integers(0, 200_000))
def test_a_cost_is_never_negative_nor_beyond_queue_and_whole_prompt(
        turns: list[tuple[Route, str, int, float]], prompt_tokens: int) -> None:
    clock = ManualClock()
    costs = Costs(Health(clock))
    for place, key, tokens, pause_s in turns:
        costs.note(place, 2, key, tokens)
        clock.advance(pause_s)
    for place in (HERE, THERE):
        most_ms = 1_000 * (MAX_QUEUE_S + prompt_tokens / place.prefill_tokens_per_s)
        assert 0 <= costs.ms(place, "a", prompt_tokens) <= most_ms + 0.001


def test_sessions_are_counted_where_they_were_served_last_and_for_as_long_as_they_are_warm() -> None:
    clock = ManualClock()
    costs = Costs(Health(clock))
    for key, place in (("a", "us"), ("b", "us"), ("c", "eu"), ("b", "eu")):
        costs.note(route(place), 2, key, 5_000)
    assert costs.sessions() == {"us": 1, "eu": 2}
    clock.advance(WARM_S / 2)
    costs.note(route("us"), 2, "d", 5_000)
    clock.advance(WARM_S / 2 + 1)
    assert costs.sessions() == {"us": 1}
