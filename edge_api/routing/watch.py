"""What the probes of one frontend say together. Pure: results come in, changes go out.

Slow is not lost: a good answer in time is life, whatever requests do. Two probes in a row that failed mean a loss, and
so does one that was refused or reset. Two good ones end it. Probes overlap, so a result counts by when it was sent:
what was sent before the newest good one proves nothing.

Whoever refuses is there to say so; silence may as well be this edge's own network. So a loss by silence has a witness
only if another frontend answered a probe that was sent after this one fell silent.
"""

import math
from enum import StrEnum

FAILURES = 2
GOOD_ONES = 2


class Result(StrEnum):
    """What became of a probe. `UNFAIR` says nothing of the frontend: this edge itself was too late to look, or had no
    means to ask."""

    GOOD = "good"
    FAILED = "failed"
    REFUSED = "refused"
    UNFAIR = "unfair"


class Change(StrEnum):
    """What the probes of a frontend have come to."""

    LOST = "lost"
    RECOVERED = "recovered"


class Watch:
    """Owns the judgement of one frontend, which counts as there until probes say otherwise. Times are monotonic, and
    those at which probes were sent."""

    def __init__(self) -> None:
        self.is_lost = self.was_refused = False
        self.newest_good_s = self.newest_failure_s = -math.inf
        self.lost_since_s = math.inf
        self.silent_since_s = math.inf
        self._failures = self._good_ones = 0

    def is_witness_for(self, other: "Watch") -> bool:
        """Whether this edge could reach somebody after `other` fell silent."""
        return self.newest_good_s > other.silent_since_s

    def take(self, sent_s: float, result: Result) -> Change | None:
        """The change that this result makes, if any. `sent_s` is when its probe was sent."""
        if result is Result.UNFAIR or sent_s <= self.newest_good_s:
            return None
        if result is Result.GOOD:
            return self._good(sent_s)
        self._good_ones = 0
        self._failures += FAILURES if result is Result.REFUSED else 1
        self.was_refused = self.was_refused or result is Result.REFUSED
        self.silent_since_s = min(self.silent_since_s, sent_s)
        self.newest_failure_s = max(self.newest_failure_s, sent_s)
        if self.is_lost or self._failures < FAILURES:
            return None
        self.is_lost, self.lost_since_s = True, sent_s
        return Change.LOST

    def _good(self, sent_s: float) -> Change | None:
        self.newest_good_s, self.silent_since_s, self._failures, self.was_refused = sent_s, math.inf, 0, False
        if not self.is_lost:
            return None
        self._good_ones += 1
        if self._good_ones < GOOD_ONES:
            return None
        self.is_lost, self.lost_since_s, self._good_ones = False, math.inf, 0
        return Change.RECOVERED
