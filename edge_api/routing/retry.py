"""How often a request may be tried again: shares of what clients send, so that retries never multiply an outage.

Two purses. A *retry* is for a request that failed: each request pays in `RETRIES_PER_REQUEST`. A *move* is for a
request that was open in a datacenter when that was lost: all that are open there go on elsewhere at the same moment,
which a share of the new requests could not pay. Each whole answer pays in one move: with every datacenter away, none.

With every datacenter failing from a fresh start, n requests become at most 1.07 n + 210 attempts, 1.1 n from 7,000 on.
What was saved up in good times is spent once: at most `MOST_RETRIES` and `MOST_MOVES`.
"""

from control_plane.contracts import ids

RETRIES_PER_REQUEST = 0.07
FIRST_RETRIES = 10.0
MOST_RETRIES = 100.0
FIRST_MOVES = 200
MOST_MOVES = 2_000
FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 1.0


class RetryBudget:
    """Owns both purses. Neither starts empty, so that an edge without history can move its first failures."""

    def __init__(self) -> None:
        self._retries, self._moves = FIRST_RETRIES, FIRST_MOVES

    def note_request(self) -> None:
        """A client's request came in."""
        if self._retries < MOST_RETRIES:
            self._retries += RETRIES_PER_REQUEST

    def note_answer(self) -> None:
        """A datacenter answered a request wholly."""
        if self._moves < MOST_MOVES:
            self._moves += 1

    def allow(self) -> bool:
        """Takes one retry, if there is one."""
        if self._retries < 1:
            return False
        self._retries -= 1
        return True

    def allow_move(self) -> bool:
        """Takes one move, if there is one, else one retry."""
        if self._moves < 1:
            return self.allow()
        self._moves -= 1
        return True


def backoff_s(failures: int) -> float:
    """How long to wait before the next attempt of a request that failed `failures` times. The first goes elsewhere at
    once, where nothing has failed; later ones wait, each longer and none in step with another."""
    if failures < 2:
        return 0.0
    return ids.jitter(min(FIRST_BACKOFF_S * 2.0 ** (failures - 2), LONGEST_BACKOFF_S), share=0.5)
