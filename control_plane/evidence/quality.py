"""Sums of minutes as figures: percentiles, uptime, and what steps of operations judge by. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from control_plane.contracts.evidence import ITL_BOUNDS_S, TTFT_BOUNDS_S
from control_plane.contracts.operator import Quality
from control_plane.operations.facts import QualityCounts
from control_plane.operations.quality import quantile_s

MIN_REQUESTS = 100
"""Fewer say nothing: a figure over them is null, never 100 or 0."""

Place = tuple[str, str]
"""A model and a datacenter."""


def counts_by_place(outcomes: Iterable[Any], ttft: Iterable[Any] = (),
                    itl: Iterable[Any] = ()) -> dict[Place, QualityCounts]:
    """Rows of sums, and of buckets numbered from 1, put together."""
    ttft_of, itl_of = _histograms(ttft, len(TTFT_BOUNDS_S) + 1), _histograms(itl, len(ITL_BOUNDS_S) + 1)
    return {(row.model_id, row.datacenter_id): QualityCounts(
        row.succeeded, row.failed, ttft_of.get((row.model_id, row.datacenter_id), ()),
        itl_of.get((row.model_id, row.datacenter_id), ())) for row in outcomes}


def summed(counts: Iterable[QualityCounts]) -> QualityCounts:
    """Several places' counts as one's."""
    total = QualityCounts()
    for one in counts:
        total = QualityCounts(total.succeeded + one.succeeded, total.failed + one.failed,
                              _added(total.ttft, one.ttft), _added(total.itl, one.itl))
    return total


def uptime_percent(counts: QualityCounts) -> float | None:
    """Attempts that were served, in percent of those that count; null for too few."""
    total = counts.succeeded + counts.failed
    return None if total < MIN_REQUESTS else 100.0 * counts.succeeded / total


def figures(last_5m: QualityCounts, last_30m: QualityCounts, last_1d: QualityCounts) -> Quality:
    """What an operator is shown of a model: times of the last 5 minutes, and three uptimes."""
    ttft, itl = last_5m.ttft, last_5m.itl
    return Quality(
        ttft_p50_s=_quantile_s(ttft, TTFT_BOUNDS_S, 0.5), ttft_p90_s=_quantile_s(ttft, TTFT_BOUNDS_S, 0.9),
        ttft_p99_s=_quantile_s(ttft, TTFT_BOUNDS_S, 0.99), itl_p50_s=_quantile_s(itl, ITL_BOUNDS_S, 0.5),
        itl_p90_s=_quantile_s(itl, ITL_BOUNDS_S, 0.9), uptime_5m=uptime_percent(last_5m),
        uptime_30m=uptime_percent(last_30m), uptime_1d=uptime_percent(last_1d))


def by_region(counts: Mapping[Place, QualityCounts],
              regions: Mapping[str, str]) -> dict[tuple[str, str | None], QualityCounts]:
    """The same by model and region, and by model everywhere (region null). A datacenter that is not declared any more
    counts everywhere only."""
    parts: dict[tuple[str, str | None], list[QualityCounts]] = {}
    for (model_id, datacenter_id), one in counts.items():
        parts.setdefault((model_id, None), []).append(one)
        if datacenter_id in regions:
            parts.setdefault((model_id, regions[datacenter_id]), []).append(one)
    return {key: summed(several) for key, several in parts.items()}


def _quantile_s(histogram: tuple[int, ...], bounds_s: tuple[float, ...], share: float) -> float | None:
    return None if sum(histogram) < MIN_REQUESTS else quantile_s(histogram, bounds_s, share)


def _histograms(rows: Iterable[Any], length: int) -> dict[Place, tuple[int, ...]]:
    found: dict[Place, list[int]] = {}
    for row in rows:
        buckets = found.setdefault((row.model_id, row.datacenter_id), [0] * length)
        if row.at <= length:
            buckets[row.at - 1] = row.count
    return {place: tuple(buckets) for place, buckets in found.items()}


def _added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    if not one or not other:
        return one or other
    return tuple(a + b for a, b in zip(one, other, strict=True))
