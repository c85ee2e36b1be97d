"""What may be said of counts between two looks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.evidence import TTFT_BOUNDS_S
from control_plane.operations.facts import QualityCounts
from control_plane.operations.quality import all_since, burned, error_percent, note, quantile_s, since

COUNTS = st.builds(QualityCounts, succeeded=st.integers(0, 50), failed=st.integers(0, 50),
                   ttft=st.lists(st.integers(0, 9), max_size=18).map(tuple),
                   itl=st.lists(st.integers(0, 9), max_size=15).map(tuple))


def test_the_difference_of_two_looks_is_what_happened_between_them() -> None:
    found = since(QualityCounts(12, 3, (5, 2), (1,)), QualityCounts(10, 1, (4, 2), ()))
    assert found == QualityCounts(2, 2, (1, 0), (1,))


def test_an_edge_that_was_forgotten_makes_nothing_negative() -> None:
    assert since(QualityCounts(1, 0, (0,), ()), QualityCounts(9, 9, (9,), (9,))) == QualityCounts(0, 0, (0,), ())


@given(st.dictionaries(st.sampled_from(["west", "east"]), COUNTS))
def test_what_was_noted_survives_the_database(counts: dict[str, QualityCounts]) -> None:
    noted = json.loads(json.dumps(note(counts)))
    assert all(one.succeeded == one.failed == sum(one.ttft) == sum(one.itl) == 0
               for one in all_since(counts, noted).values())


def test_a_datacenter_that_was_not_noted_counts_from_nothing() -> None:
    assert all_since({"west": QualityCounts(3, 1)}, {}) == {"west": QualityCounts(3, 1)}


def test_without_requests_there_is_no_rate() -> None:
    assert error_percent(QualityCounts()) is None


@pytest.mark.parametrize(("succeeded", "failed", "is_burned"), [
    (0, 0, False), (0, 2, False), (0, 3, True), (297, 3, False), (296, 3, True), (10_000, 3, False)])
def test_a_budget_burns_by_rate_and_by_more_than_a_few(succeeded: int, failed: int, is_burned: bool) -> None:
    assert bool(burned(QualityCounts(succeeded, failed), 1.0)) is is_burned


def test_a_burned_budget_is_told_in_numbers() -> None:
    assert burned(QualityCounts(17, 3), 1.0) == "3 of 20 requests failed (15.0%, at most 1%)"


def test_without_requests_there_is_no_percentile() -> None:
    assert quantile_s([0, 0], TTFT_BOUNDS_S, 0.9) is None
    assert quantile_s([], TTFT_BOUNDS_S, 0.9) is None


def test_a_percentile_lies_within_its_bucket_by_rank() -> None:
    assert quantile_s([0, 10], (0.1, 0.2), 0.5) == pytest.approx(0.15)
    assert quantile_s([10, 0], (0.1, 0.2), 1.0) == pytest.approx(0.1)


def test_what_took_longer_than_every_bound_is_at_the_highest() -> None:
    assert quantile_s([0, 0, 4], (0.1, 0.2), 0.5) == 0.2


@given(st.lists(st.integers(0, 20), min_size=18, max_size=18), st.floats(0.01, 1), st.floats(0.01, 1))
def test_higher_percentiles_are_never_faster(histogram: list[int], one: float, other: float) -> None:
    lower, higher = (quantile_s(histogram, TTFT_BOUNDS_S, share) for share in sorted((one, other)))
    assert lower is None or higher is None or lower <= higher + 1e-9
