"""What the probes of one frontend say together. Pure: results come in, changes go out.

Slow is not lost: a good answer in time is life, whatever requests do. Two probes in a row that failed mean a loss, and
so does one that was refused or reset. Two good ones end it. Probes overlap, so a result counts by when it was sent:
what was sent before the newest good one proves nothing.
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
    """Owns the judgement of one frontend, which counts as there until probes say otherwise."""

    def __init__(self) -> None:
        self.is_lost = False
        self._failures = self._good_ones = 0
        self._newest_good_s = -math.inf

    def take(self, sent_s: float, result: Result) -> Change | None:
        """The change that this result makes, if any. `sent_s` is monotonic."""
        if result is Result.UNFAIR or sent_s <= self._newest_good_s:
            return None
        if result is Result.GOOD:
            return self._good(sent_s)
        self._good_ones = 0
        self._failures += FAILURES if result is Result.REFUSED else 1
        if self.is_lost or self._failures < FAILURES:
            return None
        self.is_lost = True
        return Change.LOST

    def _good(self, sent_s: float) -> Change | None:
        self._newest_good_s, self._failures = sent_s, 0
        if not self.is_lost:
            return None
        self._good_ones += 1
        if self._good_ones < GOOD_ONES:
            return None
        self.is_lost, self._good_ones = False, 0
        return Change.RECOVERED
