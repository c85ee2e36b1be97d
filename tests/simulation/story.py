"""What happened in a seed, as lines that people can read, and as a digest by which two runs are compared."""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

import structlog

WHO: ContextVar[str] = ContextVar("who", default="world")
KEPT = 30


class Violated(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, words: str) -> None:
        super().__init__(f"{invariant}: {words}")
        self.invariant, self.words = invariant, words


class Story:
    """Owns the trace of one seed: its last lines, its digest, how many events there were, which rare situations were
    reached, and the first violation. `powerless` are machines that lost power: they may find torn files."""

    def __init__(self, now_s: Callable[[], float], tell: Callable[[str], None] | None = None) -> None:
        self._now_s, self._tell = now_s, tell
        self._digest = hashlib.blake2b(digest_size=16)
        self.last: deque[str] = deque(maxlen=KEPT)
        self.events = 0
        self.reached: Counter[str] = Counter()
        self.violation: Violated | None = None
        self.powerless: set[str] = set()

    def note(self, words: str, who: str | None = None) -> None:
        """Something happened."""
        self.events += 1
        line = f"{self._now_s():9.3f}  {who or WHO.get():<12} {words}"
        self._digest.update(line.encode())
        self.last.append(line)
        if self._tell is not None:
            self._tell(line)

    def step(self) -> None:
        """Something happened that is not worth a line."""
        self.events += 1

    def reach(self, situation: str) -> None:
        """A situation that must be reached by some seed."""
        self.reached[situation] += 1

    def violate(self, invariant: str, words: str) -> None:
        """An invariant does not hold; the first one is told, whatever follows from it."""
        if self.violation is None:
            self.violation = Violated(invariant, words)
            self.note(f"VIOLATED {invariant}: {words}")

    def require(self, holds: bool, invariant: str, words: str) -> None:
        if not holds:
            self.violate(invariant, words)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def log(self, _logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        """A structlog processor: the product's own log lines are part of the story."""
        name = event.pop("event")
        fields = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("exc_info", "duration_ms"))
        self.note(f"{name} {fields}".rstrip())
        if name == "outbox_quarantined" and WHO.get() in self.powerless:
            self.reach("what power tore was set aside")
        elif method == "exception" or name in UNEXPECTED:
            error = event.get("exc_info")
            self.violate("no unexpected error", f"{name} {fields} {error!r}")
        if name in SITUATIONS:
            self.reach(SITUATIONS[name])
        raise structlog.DropEvent


UNEXPECTED = frozenset({"item_failed", "outbox_quarantined", "usage_conflict"})
"""Log events that no fault of the world explains."""

SITUATIONS = {
    "automatic_failover": "a quorum of edges began a failover",
    "snapshot_refused": "an edge refused a snapshot",
    "answer_refused": "an agent refused a stale answer",
    "outbox_requests_lost": "a restart closed requests that died with the edge",
    "outbox_tail_torn": "a restart cut a torn tail off",
    "usage_shipped_again": "usage was shipped again after an outage",
    "control_plane_back": "the control plane came back",
    "identity_unknown": "an identity was unknown",
}
