"""Sums as figures: by region, percentiles inside their buckets, null from too few."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.evidence import ITL_BOUNDS_S, TTFT_BOUNDS_S
from control_plane.evidence.quality import (
    MIN_REQUESTS,
    by_region,
    counts_by_place,
    figures,
    summed,
    uptime_percent,
)
from control_plane.operations.facts import QualityCounts

NONE = QualityCounts()


@dataclass(frozen=True)
class Sums:
    """A row of outcomes."""

    model_id: str
    datacenter_id: str
    succeeded: int
    failed: int


@dataclass(frozen=True)
class Bucket:
    """A row of a histogram."""

    model_id: str
    datacenter_id: str
    at: int
    count: int


def histogram(length: int, **buckets: int) -> tuple[int, ...]:
    return tuple(buckets.get(f"b{at}", 0) for at in range(length))


def test_rows_become_counts_and_what_has_no_times_has_empty_histograms() -> None:
    counts = counts_by_place([Sums("m", "us", 3, 1), Sums("m", "eu", 1, 0)], [Bucket("m", "us", 2, 3)],
                             [Bucket("m", "us", 1, 2)])
    assert counts["m", "us"] == QualityCounts(
        3, 1, histogram(len(TTFT_BOUNDS_S) + 1, b1=3), histogram(len(ITL_BOUNDS_S) + 1, b0=2))
    assert counts["m", "eu"] == QualityCounts(1, 0)


def test_buckets_of_another_release_that_knows_more_of_them_are_left_out() -> None:
    counts = counts_by_place([Sums("m", "us", 3, 1)], [Bucket("m", "us", 99, 3), Bucket("m", "us", 1, 1)])
    assert sum(counts["m", "us"].ttft) == 1


@pytest.mark.parametrize(("succeeded", "failed", "percent"), [
    (0, 0, None), (MIN_REQUESTS - 1, 0, None), (MIN_REQUESTS, 0, 100.0), (0, MIN_REQUESTS, 0.0), (150, 50, 75.0)])
def test_uptime_is_a_share_in_percent_and_null_from_too_few(succeeded: int, failed: int, percent: float | None) -> None:
    assert uptime_percent(QualityCounts(succeeded, failed)) == percent


def test_a_percentile_lies_in_its_bucket_and_the_last_one_at_the_highest_bound() -> None:
    ttft = histogram(len(TTFT_BOUNDS_S) + 1, b2=90, b17=10)
    told = figures(QualityCounts(100, 0, ttft, ()), NONE, NONE)
    assert told.ttft_p50_s is not None
    assert TTFT_BOUNDS_S[1] < told.ttft_p50_s <= TTFT_BOUNDS_S[2]
    assert told.ttft_p99_s == TTFT_BOUNDS_S[-1]
    assert (told.itl_p50_s, told.uptime_30m, told.uptime_1d) == (None, None, None)


def test_percentiles_of_too_few_times_are_null_whatever_the_uptime() -> None:
    few = histogram(len(TTFT_BOUNDS_S) + 1, b2=MIN_REQUESTS - 1)
    told = figures(QualityCounts(MIN_REQUESTS, 0, few, ()), NONE, NONE)
    assert (told.uptime_5m, told.ttft_p50_s) == (100.0, None)


def test_regions_are_summed_and_a_datacenter_that_is_gone_counts_everywhere_only() -> None:
    counts = {("m", place): QualityCounts(count) for place, count in (("us-1", 1), ("us-2", 2), ("gone", 4))}
    assert by_region(counts, {"us-1": "us", "us-2": "us"}) == {
        ("m", None): QualityCounts(7, 0), ("m", "us"): QualityCounts(3, 0)}


several = st.lists(st.builds(
    QualityCounts, st.integers(0, 1_000), st.integers(0, 1_000),
    st.one_of(st.just(()), st.tuples(*[st.integers(0, 9)] * 3)), st.just(())), max_size=8)


@given(several, st.randoms(use_true_random=False))
def test_the_order_of_places_does_not_matter_and_nothing_is_lost(counts: list[QualityCounts], random: Any) -> None:
    shuffled = list(counts)
    random.shuffle(shuffled)
    total = summed(counts)
    assert summed(shuffled) == total
    assert (total.succeeded, total.failed, sum(total.ttft)) == (
        sum(one.succeeded for one in counts), sum(one.failed for one in counts), sum(sum(one.ttft) for one in counts))
