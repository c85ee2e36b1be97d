"""What `/healthz`, `/readyz` and `/metrics` say of an agent.

They are answered by a thread of their own, which only reads single attributes of the agent, so it needs no lock.
`/healthz` is about the event loop and not about that thread: it fails when the agent has not looked at its cluster for
a while. `/readyz` also says what is in the way to the control plane, which no fleet needs in order to serve.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from control_plane.contracts import health
from control_plane.contracts.clock import Clock
from fleet_agent.agent import Agent

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
        agent = self.agent
        if agent is None:
            return
        processes, state = agent.driver.observe(), agent.executor.state
        counts = Counter("ready" if p.is_ready else "running" if p.is_running else "absent" for p in processes)
        by_state = GaugeMetricFamily("meridian_agent_processes", "Engine processes by state.", labels=["state"])
        for name in ("ready", "running", "absent"):
            by_state.add_metric([name], counts[name])
        yield by_state
        yield CounterMetricFamily(
            "meridian_agent_restarts", "Engine processes that ended by themselves.", agent.driver.restarts)
        yield GaugeMetricFamily("meridian_agent_epoch", "Highest lease epoch seen.", state.epoch)
        yield GaugeMetricFamily("meridian_agent_generation", "Generation of the desired state.", state.generation)
        if agent.sync.synced_at_s is not None:
            age_s = self._clock.monotonic_s() - agent.sync.synced_at_s
            yield GaugeMetricFamily("meridian_agent_sync_age_seconds", "Time since the last successful sync.", age_s)


def serve(host: str, port: int, board: Health) -> int:
    """Starts answering; returns the port.

    Raises:
        OSError: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(board)
    return health.serve(host, port, health.Probes(board.is_alive, board.is_ready, board.problem, registry))
