"""The only place that reads a clock. Cores take a `Clock`; tests and the simulator give them a `ManualClock`."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for records and signatures, monotonic time for deadlines."""

    def time_s(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that only ever grow; meaningless across processes."""
        ...


class SystemClock:
    """This machine's clock. The functions themselves, with no frame around them: each request reads it many times."""

    time_s = staticmethod(time.time)
    monotonic_s = staticmethod(time.monotonic)


class ManualClock:
    """A clock that moves when it is told to."""

    def __init__(self, time_s: float = 1_800_000_000.0) -> None:
        self._time_s = time_s
        self._monotonic_s = 0.0

    def time_s(self) -> float:
        return self._time_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Moves both clocks forward."""
        self._time_s += seconds
        self._monotonic_s += seconds


def utc(time_s: float) -> datetime:
    """The aware datetime of a Unix time."""
    return datetime.fromtimestamp(time_s, UTC)
