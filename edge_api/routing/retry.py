"""How often a request may be tried again: a share of what clients send, so that retries never multiply an outage."""

RETRIES_PER_REQUEST = 0.1
FLOOR = 10.0
CEILING = 100.0


class RetryBudget:
    """A bucket of retries. Each request puts a tenth of one in; it starts at `FLOOR`, so that an edge without history
    can move its first failures, and holds at most `CEILING`. In any run of n requests at most n / 10 + 100 retries go
    out, and with everything failing from the start n / 10 + 10."""

    def __init__(self) -> None:
        self._retries = FLOOR

    def note_request(self) -> None:
        """A client's request came in."""
        if self._retries < CEILING:
            self._retries += RETRIES_PER_REQUEST

    def allow(self) -> bool:
        """Takes one retry, if there is one."""
        if self._retries < 1:
            return False
        self._retries -= 1
        return True
