"""Which port is whose. All ports of a stack are computed from one base, so that several stacks live side by side."""

import socket
from dataclasses import dataclass

from infra.local.errors import StackRefused

HOST = "127.0.0.1"
EDGES_MAX = 10
REPLICAS_MAX = 10
BLOCK = 100
PORT_MIN = 1_024
# Dynamo reads a worker's port as a signed 16-bit number; above it Linux begins to hand ports out by itself anyway.
PORT_MAX = 32_767
NAMED_MAX = 3


@dataclass(frozen=True)
class Ports:
    """The ports of the stack that begins at `base`."""

    base: int

    def edge(self, index: int) -> int:
        """An edge's public port."""
        return self.base + index

    def control_plane(self, index: int) -> int:
        """A control-plane replica's port."""
        return self.base + 10 + index

    @property
    def postgres(self) -> int:
        return self.base + 20

    @property
    def valkey(self) -> int:
        return self.base + 21

    @property
    def worker(self) -> int:
        """The worker's health and metrics."""
        return self.base + 22

    def datacenter(self, index: int) -> int:
        """The first of a datacenter's hundred ports; Dynamo's frontend listens on it."""
        return self.base + BLOCK * (index + 1)

    def agent(self, index: int) -> int:
        """The agent's health and metrics."""
        return self.datacenter(index) + 2

    def engine(self, index: int) -> tuple[int, ...]:
        """What an engine listens on: frontend, event plane and its health, one prefill and two decode workers."""
        first = self.datacenter(index)
        return first, first + 1, first + 3, first + 10, first + 11, first + 12


def free_port() -> int:
    """A loopback port that nobody listens on now; another process may still take it first."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether we could listen on a loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def require_free(wanted: dict[int, str]) -> None:
    """Raises StackRefused with every port that is taken and what it was for."""
    taken = [f"{port} ({name})" for port, name in wanted.items() if not is_free(port)]
    if taken:
        more = f" and {len(taken) - NAMED_MAX} more" if len(taken) > NAMED_MAX else ""
        raise StackRefused(
            f"another program listens on port {', '.join(taken[:NAMED_MAX])}{more}; stop it, or choose other ports "
            "with --port-base N"
        )
