"""What `/healthz`, `/readyz` and `/metrics` say of an agent.

They are answered by a thread of their own, which only reads single attributes of the agent, so it needs no lock.
`/healthz` is about the event loop and not about that thread: it fails when the agent has not looked at its cluster for
a while. `/readyz` also says what is in the way to the control plane, which no fleet needs in order to serve.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from control_plane.contracts import health
from control_plane.contracts.clock import Clock
from control_plane.contracts.figures import families
from fleet_agent.agent import Agent
from fleet_agent.figures import samples

STUCK_AFTER_S = 15.0


class Health(Collector):
    """What is known of the agent; `agent` is None until it is enrolled and its store is open."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.agent: Agent | None = None

    def is_alive(self) -> bool:
        agent = self.agent
        return agent is None or self._clock.monotonic_s() - agent.beat_at_s < STUCK_AFTER_S

    def is_ready(self) -> bool:
        return self.agent is not None and self.is_alive()

    def problem(self) -> str:
        """What keeps the agent from its control plane, in words; empty if nothing does."""
        return self.agent.sync.problem if self.agent is not None else "not enrolled yet"

    def collect(self) -> Iterator[Metric]:
        if self.agent is not None:
            yield from families(samples(self.agent, self._clock))


def serve(host: str, port: int, board: Health) -> int:
    """Starts answering; returns the port.

    Raises:
        OSError: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(board)
    return health.serve(host, port, health.Probes(board.is_alive, board.is_ready, board.problem, registry))
