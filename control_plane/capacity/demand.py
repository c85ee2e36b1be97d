"""What each pool will be asked for: a forecast from samples of earlier days. Pure.

The same time of day is looked at on each of the last seven days, in slots of ten minutes around now. An earlier day
tells how demand went on from here; how today compares with it tells how much of that to expect:

    growth(day)   = mean of today's last hour / mean of that day's same hour, held to 0.5 … 2
    expected      = median over days of growth x the peak of the next 30 minutes on that day
    upper         = second highest over days of growth x the peak of the next hour on that day (the highest of two)

So a daily wave is seen coming, a week that grows carries its growth on, and one odd day (a burst, a failover) decides
nothing. `expected` is what replicas are added for, `upper` what must still be held before any is taken away. Where no
earlier day was sampled there is no forecast, and only what is asked for now counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

DAYS = 7
SLOT_S = 600.0
SLOTS_BEFORE, SLOTS_AHEAD, SLOTS_SOON = 6, 6, 3
MIN_SLOTS = 4
MIN_GROWTH, MAX_GROWTH = 0.5, 2.0
RECENT_MINUTES, COVERED_MINUTES, PEAK_MINUTES = 5, 10, 30


@dataclass(frozen=True, slots=True)
class Slot:
    """Ten minutes of one day: the highest and the mean of its minutes."""

    peak: float
    mean: float


Day = Mapping[int, Slot]
"""A day's slots by number: 0 to 5 are the hour until this time of day, 6 to 11 the hour from it."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Requests: likely within the next half hour, and not to be ruled out within the next hour."""

    expected: float
    upper: float


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """What a pool is asked for, in requests. `now` is the median of the last five minutes and `peak` the highest of
    the last thirty; `kv_usage` and `kv_peak` are the same of the fullest cache. Null: nobody knows. `coverage` is the
    share of the minutes that a signal must hold, ten, of which there are samples."""

    now: float | None
    peak: float | None
    kv_usage: float | None
    kv_peak: float | None
    coverage: float
    forecast: Forecast | None


def forecast(today: Day, earlier: Sequence[Day]) -> Forecast | None:
    """What is to be expected from here on; null without an earlier day that was sampled, or without a last hour."""
    recent = _mean_before(today)
    if recent is None:
        return None
    soon: list[float] = []
    later: list[float] = []
    for day in earlier:
        before, ahead = _mean_before(day), _ahead(day)
        if before is not None and len(ahead) >= MIN_SLOTS:
            growth = _growth(recent, before)
            soon.append(growth * max(day[slot].peak for slot in ahead if slot < SLOTS_BEFORE + SLOTS_SOON))
            later.append(growth * max(day[slot].peak for slot in ahead))
    if not soon:
        return None
    later.sort(reverse=True)
    return Forecast(median(soon), max(later[1 if len(later) > 2 else 0], median(soon)))


def observed(minutes: Sequence[float | None], kv_usage: Sequence[float | None], expected: Forecast | None,
             covered_minutes: int = COVERED_MINUTES) -> PoolDemand:
    """The demand of a pool from its last minutes, the newest last; null is a minute without a sample. Coverage is of
    the last `covered_minutes`."""
    return PoolDemand(
        now=_median(minutes[-RECENT_MINUTES:]), peak=_highest(minutes[-PEAK_MINUTES:]),
        kv_usage=_median(kv_usage[-RECENT_MINUTES:]), kv_peak=_highest(kv_usage[-PEAK_MINUTES:]),
        coverage=sum(one is not None for one in minutes[-covered_minutes:]) / covered_minutes, forecast=expected)


def _mean_before(day: Day) -> float | None:
    found = [day[slot].mean for slot in range(SLOTS_BEFORE) if slot in day]
    return fmean(found) if len(found) >= MIN_SLOTS else None


def _ahead(day: Day) -> list[int]:
    return [slot for slot in range(SLOTS_BEFORE, SLOTS_BEFORE + SLOTS_AHEAD) if slot in day]


def _growth(recent: float, before: float) -> float:
    return MAX_GROWTH if before <= 0 < recent else min(max(recent / before, MIN_GROWTH), MAX_GROWTH) if before else 1.0


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _highest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
