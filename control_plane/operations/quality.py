"""What may be said of a model's quality in a datacenter between two looks: error budget and percentiles. Pure.

Edges count attempts by the rules in `docs/operations/quality.md`: what is no fault of the datacenter's is in neither
sum. Counts only grow, so the difference of two looks is what happened between them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from control_plane.operations.facts import QualityCounts

MIN_FAILED = 3
"""Fewer failures than this burn no budget: one alone says nothing."""


def since(now: QualityCounts, before: QualityCounts) -> QualityCounts:
    """What was counted after `before`. An edge that was forgotten since then takes its part along: never below 0."""
    return QualityCounts(
        succeeded=max(0, now.succeeded - before.succeeded), failed=max(0, now.failed - before.failed),
        ttft=_minus(now.ttft, before.ttft), itl=_minus(now.itl, before.itl))


def all_since(now: Mapping[str, QualityCounts], noted: Mapping[str, Any]) -> dict[str, QualityCounts]:
    """The same for each datacenter, from what `note` made of an earlier look."""
    return {place: since(counts, _restored(noted.get(place, {}))) for place, counts in now.items()}


def note(counts: Mapping[str, QualityCounts]) -> dict[str, Any]:
    """The counts as a step remembers them."""
    return {place: {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(one).items()}
            for place, one in counts.items()}


def total(counts: QualityCounts) -> int:
    """Attempts that count."""
    return counts.succeeded + counts.failed


def error_percent(counts: QualityCounts) -> float | None:
    """Failed attempts in percent; null when there were none at all."""
    return 100.0 * counts.failed / total(counts) if total(counts) else None


def burned(counts: QualityCounts, max_error_percent: float) -> str:
    """What burned the error budget, in words; empty while it holds."""
    percent = error_percent(counts)
    if percent is None or counts.failed < MIN_FAILED or percent <= max_error_percent:
        return ""
    return f"{counts.failed} of {total(counts)} requests failed ({percent:.1f}%, at most {max_error_percent:g}%)"


def quantile_s(histogram: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """The time that `share` of the requests took at most, null without any: between the bounds of its bucket by rank,
    and the highest bound for what took longer than any."""
    count = sum(histogram)
    if not count:
        return None
    rank, below = share * count, 0
    for at, bound in enumerate(bounds):
        if at < len(histogram) and histogram[at] and below + histogram[at] >= rank:
            lower = bounds[at - 1] if at else 0.0
            return lower + (bound - lower) * (rank - below) / histogram[at]
        below += histogram[at] if at < len(histogram) else 0
    return bounds[-1]


def _minus(now: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(0, count - (before[at] if at < len(before) else 0)) for at, count in enumerate(now))


def _restored(noted: Mapping[str, Any]) -> QualityCounts:
    return QualityCounts(
        succeeded=noted.get("succeeded", 0), failed=noted.get("failed", 0),
        ttft=tuple(noted.get("ttft", ())), itl=tuple(noted.get("itl", ())))
