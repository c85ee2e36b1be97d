"""Arithmetic of shares."""

from hypothesis import assume, given
from hypothesis import strategies as st

from control_plane.operations.shares import Part, most_percent, percent_by_datacenter, shifted

WEIGHTS = st.integers(1, 10_000)


def part(name: str, datacenter: str, weight: int = 100, share: int = 1_000) -> Part:
    return Part(name, datacenter, weight, share)


def after(parts: list[Part], shares: dict[str, int]) -> list[Part]:
    return [Part(one.deployment_id, one.datacenter_id, one.weight, shares.get(one.deployment_id, one.share_permille))
            for one in parts]


def test_equal_weights_move_equal_shares() -> None:
    assert shifted([part("a", "west")], [part("b", "east")], 30) == {"a": 700, "b": 1_300}


def test_a_heavier_target_needs_less_share_for_the_same_traffic() -> None:
    assert shifted([part("a", "west", 100)], [part("b", "east", 300)], 30) == {"a": 700, "b": 1_100}


def test_several_deployments_keep_their_proportions() -> None:
    source = [part("a1", "west", share=1_000), part("a2", "west", share=500)]
    target = [part("b1", "east", share=600), part("b2", "east", share=300)]
    assert shifted(source, target, 50) == {"a1": 500, "a2": 250, "b1": 1_100, "b2": 550}


def test_a_target_that_had_nothing_splits_evenly() -> None:
    target = [part("b1", "east", share=0), part("b2", "east", share=0)]
    assert shifted([part("a", "west")], target, 100) == {"a": 0, "b1": 500, "b2": 500}


def test_a_target_takes_no_more_than_the_highest_share() -> None:
    source, target = [part("a", "west", 10_000)], [part("b", "east", 1)]
    assert most_percent(source, target) == 0
    assert shifted(source, target, 100)["b"] == 10_000


def test_traffic_is_told_in_percent_of_the_model() -> None:
    parts = [part("a", "west", 100), part("b", "east", 300), part("c", "north", 100, 0)]
    assert percent_by_datacenter(parts) == {"west": 25.0, "east": 75.0, "north": 0.0}
    assert percent_by_datacenter([part("a", "west", 0)]) == {"west": 0.0}


@given(WEIGHTS, WEIGHTS, st.integers(100, 3_000), st.integers(100, 3_000), st.integers(1, 100))
def test_what_one_loses_the_other_gains(heavy: int, light: int, here: int, there: int, percent: int) -> None:
    source, target = [part("a", "west", heavy, here)], [part("b", "east", light, there)]
    assume(percent <= most_percent(source, target))
    parts = [*source, *target]
    moved = after(parts, shifted(source, target, percent))
    before, then = (sum(one.pull for one in some) for some in (parts, moved))
    assert abs(before - then) <= light  # half a permille of rounding at most, of the target's weight


@given(WEIGHTS, WEIGHTS, st.integers(1, 99))
def test_more_percent_never_give_the_target_less(heavy: int, light: int, percent: int) -> None:
    source, target = [part("a", "west", heavy)], [part("b", "east", light)]
    assert shifted(source, target, percent)["b"] <= shifted(source, target, percent + 1)["b"]
    assert shifted(source, target, percent)["a"] >= shifted(source, target, percent + 1)["a"]
