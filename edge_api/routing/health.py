"""Passive outlier ejection: what this edge's own requests say about each datacenter.

A failure to connect ejects a datacenter for 1 s, the next one after that for 2 s, and so on up to 30 s; a success
forgets all of it. When an ejection ends, one request at a time tries it (half-open) until one succeeded. Only
connection-level evidence counts: a slow datacenter or one that answers errors is not a lost one.
"""

from dataclasses import dataclass

from control_plane.contracts.clock import Clock

FIRST_EJECTION_S = 1.0
LONGEST_EJECTION_S = 30.0
TRIAL_S = 2.0


@dataclass(slots=True)
class _Fault:
    """A datacenter that failed and has not succeeded since; times are monotonic seconds."""

    ejection_s: float
    ejected_until_s: float
    trial_until_s: float = 0.0


class Health:
    """Owns the ejections of one edge, a handful of entries."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults: dict[str, _Fault] = {}

    @property
    def has_faults(self) -> bool:
        """Whether any datacenter failed and has not succeeded since."""
        return bool(self._faults)

    def is_ejected(self, datacenter_id: str) -> bool:
        """Whether new requests should go elsewhere."""
        fault = self._faults.get(datacenter_id)
        if fault is None:
            return False
        return self._clock.monotonic_s() < max(fault.ejected_until_s, fault.trial_until_s)

    def chosen(self, datacenter_id: str) -> None:
        """A request goes there. After an ejection it is the trial that the others wait for, for at most `TRIAL_S`."""
        fault = self._faults.get(datacenter_id)
        if fault is not None:
            fault.trial_until_s = self._clock.monotonic_s() + TRIAL_S

    def failed(self, datacenter_id: str) -> bool:
        """A connection failed. True if this ejected it; failures while it is ejected belong to the same outage."""
        now_s, fault = self._clock.monotonic_s(), self._faults.get(datacenter_id)
        if fault is None:
            self._faults[datacenter_id] = _Fault(FIRST_EJECTION_S, now_s + FIRST_EJECTION_S)
            return True
        fault.trial_until_s = 0.0
        if now_s < fault.ejected_until_s:
            return False
        fault.ejection_s = min(2 * fault.ejection_s, LONGEST_EJECTION_S)
        fault.ejected_until_s = now_s + fault.ejection_s
        return True

    def succeeded(self, datacenter_id: str) -> None:
        """It answered: whatever was wrong is over."""
        self._faults.pop(datacenter_id, None)
