"""`/healthz`, `/readyz` and `/metrics`, answered by a thread of its own with as little memory as possible.

The thread only reads single attributes of the agent, so it needs no lock. `/healthz` is about the event loop and not
about this thread: it fails when the agent has not looked at its cluster for a while. `/readyz` also says what is in the
way to the control plane, which no fleet needs in order to serve.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from control_plane.contracts.clock import Clock
from fleet_agent.agent import Agent

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

STUCK_AFTER_S = 15.0
REQUEST_DEADLINE_S = 5.0


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


def serve(host: str, port: int, health: Health) -> int:
    """Starts answering; returns the port.

    Raises:
        OSError: the address cannot be listened on.
    """
    server = make_server(host, port, _app(health), server_class=_Server, handler_class=_Handler)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return int(server.server_port)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Like the base's, without its look-up of this host's name, which can take seconds."""
        TCPServer.server_bind(self)
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_DEADLINE_S

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing: health is asked for every few seconds."""


def _app(health: Health) -> "WSGIApplication":
    registry = CollectorRegistry()
    registry.register(health)
    metrics = make_wsgi_app(registry)
    checks: dict[str, Callable[[], bool]] = {"/healthz": health.is_alive, "/readyz": health.is_ready}

    def app(environ: "WSGIEnvironment", start_response: "StartResponse") -> "list[bytes]":
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return list(metrics(environ, start_response))
        check = checks.get(path)
        ok = check is not None and check()
        status = "200 OK" if ok else "404 Not Found" if check is None else "503 Service Unavailable"
        start_response(status, [("content-type", "text/plain")])
        problem = health.problem() if path == "/readyz" else ""
        return [f"{'ok' if ok else 'no'}{f'; {problem}' if problem else ''}\n".encode()]

    return app
