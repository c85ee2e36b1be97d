"""How well each datacenter served each model of late, as this edge's own requests tell.

Uptime is successes by all that was no client's fault (`edge_api/quality/rules.py`).

The rate of wrong tool calls is OpenRouter's too (`edge_api/tool_calls`). One number a minute and kind is kept for a
day, and at most `MAX_SAMPLES` latencies and speeds for half an hour, so the memory is bounded by models times
datacenters.
"""

from collections import deque
from math import ceil
from typing import Any

from control_plane.contracts.clock import Clock
from control_plane.contracts.usage import UsageRecord
from edge_api.quality.rules import first_byte_s, judged

MIN_SAMPLES = 100
MAX_SAMPLES = 2_000
MAX_PLACES = 1_000
MINUTE_S = 60.0
WINDOWS_MIN = {"uptime_last_5m": 5, "uptime_last_30m": 30, "uptime_last_1d": 1_440}
RECENT_MIN = 30
DAY_MIN = 1_440
PERCENTILES = (50, 75, 90, 99)


class _Share:
    """How many of all were bad, by minute of the last day."""

    __slots__ = ("minutes",)

    def __init__(self) -> None:
        self.minutes: dict[int, list[int]] = {}  # all, bad

    def count(self, minute: int, is_bad: bool, now_min: int) -> None:
        if minute not in self.minutes:
            if len(self.minutes) >= DAY_MIN:
                self.minutes = {at: counted for at, counted in self.minutes.items() if at > now_min - DAY_MIN}
            self.minutes[minute] = [0, 0]
        counted = self.minutes[minute]
        counted[0] += 1
        counted[1] += is_bad

    def bad(self, now_min: int, window_min: int) -> float | None:
        """The share of the bad ones; null for too few."""
        recent = [counted for at, counted in self.minutes.items() if at > now_min - window_min]
        total, bad = sum(counted[0] for counted in recent), sum(counted[1] for counted in recent)
        return None if total < MIN_SAMPLES else bad / total


class _Place:
    """One model in one datacenter: attempts that failed, answers with wrong calls, and samples of (minute, seconds,
    tokens per second)."""

    __slots__ = ("called", "samples", "tried")

    def __init__(self) -> None:
        self.tried, self.called = _Share(), _Share()
        self.samples: deque[tuple[int, float, float | None]] = deque(maxlen=MAX_SAMPLES)


class Quality:
    """Owns the counts of one edge."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[tuple[str, str], _Place] = {}

    def note(self, record: UsageRecord) -> None:
        """Counts each attempt of a request for the datacenter that it was sent to, in the minute that it ended."""
        now_min = self._minute()
        age_s = self._clock.time_s() - record.opened_at_s - record.duration_ms / 1_000
        minute = now_min - int(max(0.0, age_s) // MINUTE_S)
        first_s = first_byte_s(record)
        for datacenter_id, was_served in judged(record):
            place = None if was_served is None else self._place(record.model_id, datacenter_id)
            if place is None:
                continue
            place.tried.count(minute, not was_served, now_min)
            if first_s is not None:
                place.samples.append((minute, first_s, _tokens_per_s(record)))

    def note_calls(self, model_id: str, datacenter_id: str, is_wrong: bool) -> None:
        """Counts an answer that ended with tool calls."""
        place, now_min = self._place(model_id, datacenter_id), self._minute()
        if place is not None:
            place.called.count(now_min, is_wrong, now_min)

    def figures(self, model_id: str, datacenter_id: str) -> dict[str, Any]:
        """Uptimes in percent, latencies to the first byte in seconds, speeds in tokens per second of the whole time
        that a request took, the share of answers with wrong tool calls; null where fewer than `MIN_SAMPLES` tell."""
        minute, place = self._minute(), self._places.get((model_id, datacenter_id)) or _Place()
        recent = [sample for sample in place.samples if sample[0] > minute - RECENT_MIN]
        speeds = [speed for _, _, speed in recent if speed is not None]
        return {
            **{name: _percent_good(place.tried.bad(minute, window_min)) for name, window_min in WINDOWS_MIN.items()},
            "latency_last_30m": percentiles([latency_s for _, latency_s, _ in recent]),
            "throughput_last_30m": percentiles(speeds, descending=True),
            "tool_call_error_rate_1d": place.called.bad(minute, DAY_MIN),
        }

    def _place(self, model_id: str, datacenter_id: str) -> _Place | None:
        key = (model_id, datacenter_id)
        place = self._places.get(key)
        if place is None and len(self._places) < MAX_PLACES:
            place = self._places[key] = _Place()
        return place

    def _minute(self) -> int:
        return int(self._clock.monotonic_s() // MINUTE_S)


def percentiles(values: list[float], descending: bool = False) -> dict[str, float] | None:
    """The value that so many percent are not worse than; null for too few values."""
    if len(values) < MIN_SAMPLES:
        return None
    ordered = sorted(values, reverse=descending)
    return {f"p{share}": ordered[ceil(share * len(ordered) / 100) - 1] for share in PERCENTILES}


def _percent_good(bad: float | None) -> float | None:
    return None if bad is None else 100 * (1 - bad)


def _tokens_per_s(record: UsageRecord) -> float | None:
    if not record.completion_tokens or record.duration_ms <= 0:
        return None
    return 1_000 * record.completion_tokens / record.duration_ms
