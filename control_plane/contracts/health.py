"""`/healthz`, `/readyz` and `/metrics` of a process without a web framework, answered by a thread of its own with as
little memory as possible. The thread only calls what it is given, so a process that hangs still answers that it does.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

REQUEST_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class Probes:
    """What is told of a process. They are called from another thread and must not block; `problem` is in words, empty
    if there is none, and shown by `/readyz`."""

    is_alive: Callable[[], bool]
    is_ready: Callable[[], bool]
    problem: Callable[[], str]
    registry: CollectorRegistry


def serve(host: str, port: int, probes: Probes) -> int:
    """Starts answering; returns the port.

    Raises:
        OSError: the address cannot be listened on.
    """
    server = make_server(host, port, _app(probes), server_class=_Server, handler_class=_Handler)
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


def _app(probes: Probes) -> "WSGIApplication":
    metrics = make_wsgi_app(probes.registry)
    checks: dict[str, Callable[[], bool]] = {"/healthz": probes.is_alive, "/readyz": probes.is_ready}

    def app(environ: "WSGIEnvironment", start_response: "StartResponse") -> "list[bytes]":
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return list(metrics(environ, start_response))
        check = checks.get(path)
        ok = check is not None and check()
        status = "200 OK" if ok else "404 Not Found" if check is None else "503 Service Unavailable"
        start_response(status, [("content-type", "text/plain")])
        problem = probes.problem() if path == "/readyz" else ""
        return [f"{'ok' if ok else 'no'}{f'; {problem}' if problem else ''}\n".encode()]

    return app
