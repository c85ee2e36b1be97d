"""How well each datacenter served each model of late, as this edge's own usage records tell.

Uptime is successes by all that was no client's fault (OpenRouter's rule: 400, 403, 413 and 429 do not count), a broken
answer being a failure. One number a minute and kind is kept for a day, and at most `MAX_SAMPLES` latencies and speeds
for half an hour, so the memory is bounded by models times datacenters.
"""

from collections import deque
from math import ceil
from typing import Any

from control_plane.contracts.clock import Clock
from control_plane.contracts.usage import Outcome, UsageRecord

MIN_SAMPLES = 100
MAX_SAMPLES = 2_000
MAX_PLACES = 1_000
MINUTE_S = 60.0
WINDOWS_MIN = {"uptime_last_5m": 5, "uptime_last_30m": 30, "uptime_last_1d": 1_440}
RECENT_MIN = 30
DAY_MIN = 1_440
UNCOUNTED = frozenset({400, 403, 413, 415, 422, 429})
PERCENTILES = (50, 75, 90, 99)


class _Place:
    """One model in one datacenter: counts by minute, oldest first, and samples of (minute, seconds, tokens per s)."""

    __slots__ = ("minutes", "samples")

    def __init__(self) -> None:
        self.minutes: deque[list[int]] = deque()  # [minute, all, failed]
        self.samples: deque[tuple[int, float, float | None]] = deque(maxlen=MAX_SAMPLES)

    def count(self, minute: int, failed: bool) -> None:
        if not self.minutes or self.minutes[-1][0] < minute:
            self.minutes.append([minute, 0, 0])
            while self.minutes[0][0] <= minute - DAY_MIN:
                self.minutes.popleft()
        self.minutes[-1][1] += 1
        self.minutes[-1][2] += failed

    def uptime(self, minute: int, window_min: int) -> float | None:
        total = failed = 0
        for at, counted, broken in reversed(self.minutes):
            if at <= minute - window_min:
                break
            total, failed = total + counted, failed + broken
        return None if total < MIN_SAMPLES else 100 * (total - failed) / total


class Quality:
    """Owns the counts of one edge."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[tuple[str, str], _Place] = {}

    def note(self, record: UsageRecord) -> None:
        """Counts each attempt of a request for the datacenter that it was sent to. The last one, if it was accepted,
        ended as the request did; one before it that was accepted broke off."""
        minute = self._minute()
        last = len(record.attempts) - 1
        for index, attempt in enumerate(record.attempts):
            if attempt.status in UNCOUNTED:
                continue
            is_whole = index == last and record.outcome is not Outcome.UPSTREAM_LOST and attempt.status == 200
            place = self._place(record.model_id, attempt.datacenter_id)
            if place is None:
                continue
            place.count(minute, not is_whole)
            if is_whole and index == 0 and record.ttft_ms is not None:
                place.samples.append((minute, record.ttft_ms / 1_000, _tokens_per_s(record)))

    def figures(self, model_id: str, datacenter_id: str) -> dict[str, Any]:
        """Uptimes in percent, latencies to the first byte in seconds, speeds in tokens per second of the whole time
        that a request took; null where fewer than `MIN_SAMPLES` tell."""
        minute, place = self._minute(), self._places.get((model_id, datacenter_id)) or _Place()
        recent = [sample for sample in place.samples if sample[0] > minute - RECENT_MIN]
        speeds = [speed for _, _, speed in recent if speed is not None]
        return {
            **{name: place.uptime(minute, window_min) for name, window_min in WINDOWS_MIN.items()},
            "latency_last_30m": percentiles([latency_s for _, latency_s, _ in recent]),
            "throughput_last_30m": percentiles(speeds, descending=True),
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


def _tokens_per_s(record: UsageRecord) -> float | None:
    if not record.completion_tokens or record.duration_ms <= 0:
        return None
    return 1_000 * record.completion_tokens / record.duration_ms
