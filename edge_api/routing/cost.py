"""What a request would wait for in each datacenter, in milliseconds: the way there, the queue, and its uncached prompt.

- The way is the round trip that probes measured; unknown counts as none.
- The queue is what this edge itself sent there of late: uncached prompt tokens, worked off at the prefill rate of one
  replica, scaled by the datacenter's weight. Nobody tells an edge how many replicas and how many other edges there
  are, so this is worth a comparison between datacenters and no more; it is bounded by `MAX_QUEUE_S`.
- Cached is what the session's last turn left in the place where it was served. Only that place is remembered, only for
  prompts that are worth a move, for `WARM_S` and at most `MAX_SESSIONS` sessions. What is not known is not cached.
"""

from collections import Counter
from typing import NamedTuple

from edge_api.routing.health import Health
from edge_api.routing.table import Route

LONG_PROMPT_TOKENS = 1_000
WARM_S = 900.0
MAX_SESSIONS = 20_000
MAX_QUEUE_S = 10.0


class _Turn(NamedTuple):
    """Where a session was served last, with how many prompt tokens, when (monotonic)."""

    deployment_id: str
    datacenter_id: str
    prompt_tokens: int
    at_s: float


class Costs:
    """Owns the queues and the memory of sessions of one edge."""

    def __init__(self, health: Health) -> None:
        self._rtt_ms, self._monotonic_s = health.rtt_ms, health.clock.monotonic_s
        self._busy_until_s: dict[str, float] = {}
        self._turns: dict[str, _Turn] = {}

    def ms(self, route: Route, session_key: str, prompt_tokens: int) -> float:
        """What the request would wait for there."""
        now_s = self._monotonic_s()
        queue_s = self._busy_until_s.get(route.deployment_id, now_s) - now_s
        prefill_s = self._uncached_tokens(route, session_key, prompt_tokens, now_s) / route.prefill_tokens_per_s
        return self._rtt_ms.get(route.address, 0.0) + 1_000 * (max(queue_s, 0.0) + prefill_s)

    def note(self, route: Route, routes: int, session_key: str, prompt_tokens: int) -> None:
        """A long prompt goes there; the model has `routes` places."""
        now_s = self._monotonic_s()
        uncached_tokens = self._uncached_tokens(route, session_key, prompt_tokens, now_s)
        drain_tokens_per_s = route.prefill_tokens_per_s * max(route.share * routes, 0.01)
        free_at_s = max(self._busy_until_s.get(route.deployment_id, now_s), now_s)
        self._busy_until_s[route.deployment_id] = min(
            free_at_s + uncached_tokens / drain_tokens_per_s, now_s + MAX_QUEUE_S)
        turns = self._turns
        turns.pop(session_key, None)  # the newest is last, so the first is the one to forget
        turns[session_key] = _Turn(route.deployment_id, route.datacenter_id, prompt_tokens, now_s)
        if len(turns) > MAX_SESSIONS:
            del turns[next(iter(turns))]

    def sessions(self) -> dict[str, int]:
        """How many sessions are known to be warm in each datacenter: those with long prompts."""
        turns, oldest_s = self._turns, self._monotonic_s() - WARM_S
        while turns and turns[first := next(iter(turns))].at_s < oldest_s:
            del turns[first]
        return dict(Counter(turn.datacenter_id for turn in turns.values()))

    def _uncached_tokens(self, route: Route, session_key: str, prompt_tokens: int, now_s: float) -> int:
        turn = self._turns.get(session_key)
        if turn is None or turn.deployment_id != route.deployment_id or now_s - turn.at_s > WARM_S:
            return prompt_tokens
        return max(prompt_tokens - turn.prompt_tokens, 0)
