"""Room for bodies."""

from hypothesis import given
from hypothesis import strategies as st

from edge_api.hot.bodies import Bodies

MOST = 100


def test_there_is_room_for_half_to_each_team() -> None:
    bodies = Bodies()
    assert bodies.hold("a", 50, MOST)
    assert not bodies.hold("a", 1, MOST)
    assert bodies.hold("b", 50, MOST)
    assert not bodies.hold("c", 1, MOST)
    assert bodies.held_bytes == 100


def test_what_is_let_go_is_room_again() -> None:
    bodies = Bodies()
    assert bodies.hold("a", 50, MOST)
    bodies.let_go("a", 20)
    assert bodies.hold("a", 20, MOST)
    assert not bodies.hold("a", 1, MOST)


def test_what_finds_no_room_takes_none() -> None:
    bodies = Bodies()
    assert not bodies.hold("a", 51, MOST)
    assert bodies.held_bytes == 0
    assert bodies.hold("a", 50, MOST)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60))))
def test_no_order_of_bodies_goes_past_the_bounds_or_leaves_anything(asked: list[tuple[str, int]]) -> None:
    bodies, held = Bodies(), [("", 0)][:0]
    for team, size in asked:
        if bodies.hold(team, size, MOST):
            held.append((team, size))
        assert bodies.held_bytes == sum(size for _, size in held) <= MOST
        assert sum(size for known, size in held if known == team) <= MOST / 2
    for team, size in held:
        bodies.let_go(team, size)
    assert bodies.held_bytes == 0
    assert not bodies._of_team
