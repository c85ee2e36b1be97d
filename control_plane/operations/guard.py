"""Conditions that end a shift, such as `ttft_p90>2s or error_rate>1%`: parsed when it is ordered, judged while it runs.
Pure.

A condition is `METRIC > VALUE` or `METRIC < VALUE`; several are joined by `or`. What nobody measured never comes true.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from control_plane.contracts.evidence import ITL_BOUNDS_S, TTFT_BOUNDS_S
from control_plane.operations.facts import QualityCounts
from control_plane.operations.quality import error_percent, quantile_s, total

MIN_REQUESTS = 20
"""Fewer requests than this make no percentile and no rate."""

PATTERN = re.compile(r"\s*(?P<metric>[a-z][a-z0-9_]*)\s*(?P<sign>[<>]=?|\S)\s*(?P<number>-?[0-9]+(?:\.[0-9]+)?)"
                     r"\s*(?P<unit>ms|s|%)?\s*")
JOINT = re.compile(r"\s+or\s+")
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
BOUNDS_S = {"ttft": TTFT_BOUNDS_S, "itl": ITL_BOUNDS_S}


class Kind(StrEnum):
    """What a metric is measured in."""

    TIME = "a time: write 2s or 350ms"
    SHARE = "a percentage: write 1%"
    COUNT = "a number of requests, without a unit"


METRICS: Mapping[str, Kind] = {
    **{f"{name}_{percentile}": Kind.TIME for name in BOUNDS_S for percentile in PERCENTILES},
    "error_rate": Kind.SHARE, "queue": Kind.COUNT, "headroom": Kind.COUNT,
}
SCALES: Mapping[Kind, Mapping[str | None, float]] = {
    Kind.TIME: {"s": 1.0, "ms": 0.001}, Kind.SHARE: {"%": 1.0}, Kind.COUNT: {None: 1.0}}


class Unreadable(ValueError):
    """The text is no condition; the message says where and what would be one."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. `limit` is in seconds, percent or requests; `at_limit`: equal is enough."""

    text: str
    metric: str
    is_above: bool
    at_limit: bool
    limit: float

    def holds(self, value: float) -> bool:
        if value == self.limit:
            return self.at_limit
        return (value > self.limit) is self.is_above


@dataclass(frozen=True, slots=True)
class Readings:
    """What is known of a datacenter since a step of the shift began; null is not measured."""

    quality: QualityCounts
    queue: int | None
    headroom: int | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """`true` says which condition came true and by what, empty if none did; `unknown` are those without data."""

    true: str
    unknown: tuple[str, ...]


def parse(text: str) -> tuple[Condition, ...]:
    """The conditions in a text.

    Raises:
        Unreadable: there is a fault in it.
    """
    found, at = [], 0
    for joint in [*JOINT.finditer(text), None]:
        end = joint.start() if joint else len(text)
        found.append(_condition(text, at, end))
        at = joint.end() if joint else end
    return tuple(found)


def judge(conditions: tuple[Condition, ...], readings: Readings) -> Judgement:
    """Which condition holds now."""
    unknown = []
    for condition in conditions:
        value = _value(condition.metric, readings)
        if value is None:
            unknown.append(condition.text)
        elif condition.holds(value):
            return Judgement(f"{condition.text}: it is {_in_words(condition.metric, value)}", ())
    return Judgement("", tuple(unknown))


def _condition(text: str, at: int, end: int) -> Condition:
    found = PATTERN.match(text, at, end)
    if found is None:
        raise _fault(text, at, "a condition is METRIC>VALUE, such as ttft_p90>2s")
    if found["metric"] not in METRICS:
        raise _fault(text, found.start("metric"), f"there is no metric {found['metric']}; there are "
                     + ", ".join(METRICS))
    if found["sign"] not in (">", ">=", "<", "<="):
        raise _fault(text, found.start("sign"), "compare with > or <")
    kind = METRICS[found["metric"]]
    if found["unit"] not in SCALES[kind]:
        raise _fault(text, found.start("number"), f"{found['metric']} is {kind.value}")
    if found.end() != end:
        raise _fault(text, found.end(), "join conditions with `or`")
    limit = float(found["number"]) * SCALES[kind][found["unit"]]
    if limit < 0 and found["metric"] != "headroom":
        raise _fault(text, found.start("number"), f"{found['metric']} is never below 0")
    if kind is Kind.TIME and limit > (highest := BOUNDS_S[found["metric"].split("_")[0]][-1]):
        raise _fault(text, found.start("number"), f"edges tell no times above {highest:g}s apart")
    return Condition(found[0].strip(), found["metric"], found["sign"][0] == ">", found["sign"].endswith("="), limit)


def _fault(text: str, at: int, what: str) -> Unreadable:
    there = text[at:].strip()
    return Unreadable(f"abort_if, at character {at + 1}" + (f" ({there!r})" if there else " (its end)") + f": {what}")


def _value(metric: str, readings: Readings) -> float | None:
    if metric == "queue":
        return readings.queue
    if metric == "headroom":
        return readings.headroom
    quality = readings.quality
    if metric == "error_rate":
        return error_percent(quality) if total(quality) >= MIN_REQUESTS else None
    name, percentile = metric.split("_")
    histogram = quality.ttft if name == "ttft" else quality.itl
    if sum(histogram) < MIN_REQUESTS:
        return None
    return quantile_s(histogram, BOUNDS_S[name], PERCENTILES[percentile])


def _in_words(metric: str, value: float) -> str:
    match METRICS[metric]:
        case Kind.TIME:
            return f"{value:.3g}s"
        case Kind.SHARE:
            return f"{value:.1f}%"
        case Kind.COUNT:
            return f"{value:g}"
