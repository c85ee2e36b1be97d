"""Which denials are worth an audit event: the first of its kind, then one a minute, so that nobody floods the log."""

from collections import OrderedDict

QUIET_S = 60.0
MAX_REMEMBERED = 1_000


class Denials:
    """Owns when each kind of denial was noted last, by this replica. Times are monotonic."""

    def __init__(self) -> None:
        self._noted_s: OrderedDict[tuple[str, str], float] = OrderedDict()

    def is_news(self, actor: str, what: str, now_s: float) -> bool:
        """Whether to note that `actor` was denied `what`; if so, that it was noted now."""
        noted_s = self._noted_s.get((actor, what))
        if noted_s is not None and now_s - noted_s < QUIET_S:
            return False
        self._noted_s[actor, what] = now_s
        self._noted_s.move_to_end((actor, what))
        if len(self._noted_s) > MAX_REMEMBERED:
            self._noted_s.popitem(last=False)
        return True
