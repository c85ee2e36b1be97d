"""A rate limit by this edge's own share, on a clock that the test moves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_api.admission.rates import largest_block, most_in_a_minute, share
from edge_api.errors import OVER_WHOLE_LIMIT, Refusal
from edge_api.hot.services import Grant
from tests.unit.edge_api.admission.parts import Place, key_limit, need, principal, team_limit


def let_in(place: Place, count: int, size: int = 10, requests: int | None = None,
           tokens: int | None = None) -> list[Grant]:
    """The grants of as many requests as were let in."""
    who, grants = principal(key_limit(requests, tokens)), list[Grant]()
    for _ in range(count):
        try:
            granted = place.gate.admit_now(need(who, prompt_tokens=size, completion_tokens=0))
        except Refusal:
            continue
        assert granted is not None
        grants.append(granted)
    return grants


def test_the_bound_is_the_limit_and_one_block_an_edge() -> None:
    assert most_in_a_minute(600, 2) == 600 + 2 * largest_block(600) == 674


def test_small_limits_are_exact() -> None:
    assert most_in_a_minute(15, 8) == 15


def test_a_share_is_never_nothing_of_something() -> None:
    assert (share(100, 3), share(2, 5), share(0, 5), share(7, 0)) == (33, 1, 0, 7)


def test_a_limit_lets_in_as_many_as_it_says() -> None:
    assert len(let_in(Place(), 50, requests=20)) == 20


def test_a_limit_is_divided_by_the_living_edges() -> None:
    place = Place(edges=4)
    assert len(let_in(place, 50, requests=20)) == 5
    place.edges = 2
    assert len(let_in(place, 50, requests=20)) == 5


def test_a_minute_later_all_of_it_is_there_again() -> None:
    place = Place()
    let_in(place, 20, requests=20)
    place.clock.advance(55)
    assert let_in(place, 1, requests=20) == []
    place.clock.advance(10)
    assert len(let_in(place, 50, requests=20)) == 20


def test_unused_tokens_may_be_used_by_others() -> None:
    place = Place()
    first, *others = let_in(place, 10, 50, tokens=100)
    assert len(others) == 1
    first.settle(tokens=10, cost_nusd=0)
    assert len(let_in(place, 10, 40, tokens=100)) == 1


def test_a_request_that_was_never_settled_used_no_tokens() -> None:
    place = Place()
    [granted] = let_in(place, 1, 100, tokens=100)
    granted.release()
    assert len(let_in(place, 10, 100, tokens=100)) == 1


def test_a_request_counts_as_one_whatever_became_of_it() -> None:
    place = Place()
    [granted] = let_in(place, 1, requests=1)
    granted.release()
    assert let_in(place, 1, requests=1) == []


def test_tokens_beyond_the_reservation_count() -> None:
    place = Place()
    [granted] = let_in(place, 1, 10, tokens=100)
    granted.settle(tokens=95, cost_nusd=0)
    assert let_in(place, 1, 10, tokens=100) == []


def test_settling_and_releasing_twice_counts_once() -> None:
    place = Place()
    [granted] = let_in(place, 1, 100, tokens=100)
    for _ in range(3):
        granted.settle(tokens=50, cost_nusd=0)
        granted.release()
    granted.settle(tokens=0, cost_nusd=0)
    assert len(let_in(place, 10, 50, tokens=100)) == 1


def test_a_request_that_one_limit_refuses_uses_nothing_of_the_others() -> None:
    place = Place()
    who = principal(key_limit(requests=10), team_limit(tokens=100))
    for _ in range(20):
        with pytest.raises(Refusal):
            place.gate.admit_now(need(who, prompt_tokens=101, completion_tokens=0))
    assert len(let_in(place, 20, requests=10)) == 10


def test_a_request_larger_than_its_share_but_not_than_the_limit_may_be_repeated() -> None:
    with pytest.raises(Refusal) as refused:
        Place(edges=4).gate.admit_now(need(principal(key_limit(tokens=100)), prompt_tokens=50, completion_tokens=0))
    assert refused.value.fault is not OVER_WHOLE_LIMIT


def test_a_limit_of_nothing_lets_nothing_in() -> None:
    with pytest.raises(Refusal) as refused:
        Place().gate.admit_now(need(principal(key_limit(requests=0))))
    assert refused.value.fault is OVER_WHOLE_LIMIT


def test_headers_count_down() -> None:
    first, second = let_in(Place(), 2, requests=20)
    assert b"x-ratelimit-remaining-requests: 19\r\n" in first.headers
    assert b"x-ratelimit-remaining-requests: 18\r\n" in second.headers


def test_a_figure_that_does_not_limit_has_no_headers() -> None:
    [granted] = let_in(Place(), 1, requests=20)
    assert b"tokens" not in granted.headers


def test_a_changed_limit_holds_from_the_next_request_on() -> None:
    place = Place()
    assert len(let_in(place, 5, requests=5)) == 5
    assert len(let_in(place, 50, requests=20)) == 15


def test_an_idle_limit_is_forgotten_after_its_minute() -> None:
    place = Place()
    let_in(place, 3, requests=5)
    place.tend()
    assert place.gate._rates
    place.clock.advance(70)
    place.tend()
    assert not place.gate._rates
    assert not place.gate._plans


MOMENTS = st.lists(st.tuples(st.floats(0, 20), st.integers(1, 60), st.integers(0, 60)), max_size=60)


@settings(deadline=None, max_examples=150)
@given(MOMENTS)
def test_no_minute_has_more_tokens_than_the_limit(moments: list[tuple[float, int, int]]) -> None:
    place, used = Place(), list[tuple[float, int]]()
    for pause_s, reserved, tokens in moments:
        place.clock.advance(pause_s)
        place.tend()
        for granted in let_in(place, 1, reserved, tokens=100):
            granted.settle(min(tokens, reserved), 0)
            granted.release()
            used.append((place.clock.monotonic_s(), min(tokens, reserved)))
    for since_s, _ in used:
        assert sum(tokens for at_s, tokens in used if since_s <= at_s <= since_s + 60) <= 100
