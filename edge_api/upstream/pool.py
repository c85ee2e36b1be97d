"""Pooled connections to frontends, last in first out, so that the set in use stays warm and the rest ages out."""

import asyncio
import ssl
from dataclasses import dataclass

from control_plane.contracts.clock import Clock
from edge_api.upstream.connection import UpstreamConnection

Address = tuple[str, int, bool]


class PoolFull(OSError):
    """This edge has as many connections open to that frontend as it may."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Counts are for each frontend. An idle connection older than `idle_s` is not used again."""

    connect_timeout_s: float
    idle_s: float
    max_idle: int
    max_open: int


class _Frontend:
    """The connections to one address; `open` counts those that are being opened, too."""

    __slots__ = ("_clock", "_max_idle", "idle", "open")

    def __init__(self, max_idle: int, clock: Clock) -> None:
        self._max_idle, self._clock = max_idle, clock
        self.idle: list[UpstreamConnection] = []
        self.open = 0

    def opened(self, connection: UpstreamConnection) -> None:
        self.open += 1

    def freed(self, connection: UpstreamConnection) -> None:
        if len(self.idle) >= self._max_idle:
            connection.abort()
            return
        connection.idle_since_s = self._clock.monotonic_s()
        self.idle.append(connection)

    def close_idle(self) -> None:
        """Closes what nobody uses."""
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.abort()

    def gone(self, connection: UpstreamConnection) -> None:
        self.open -= 1
        if connection.sink is None and connection in self.idle:
            self.idle.remove(connection)


class UpstreamPool:
    """All connections of this process to frontends."""

    def __init__(self, limits: PoolLimits, clock: Clock, tls: ssl.SSLContext | None = None) -> None:
        """`tls` says whom to trust; null trusts this machine's own authorities. Names are verified either way."""
        self._limits, self._clock, self._tls = limits, clock, tls
        self._frontends: dict[Address, _Frontend] = {}

    def take(self, address: Address) -> UpstreamConnection | None:
        """An idle connection, or none."""
        frontend = self._frontends.get(address)
        if frontend is None:
            return None
        idle, young_s = frontend.idle, self._clock.monotonic_s() - self._limits.idle_s
        while idle:
            connection = idle.pop()
            transport = connection.transport
            if connection.idle_since_s > young_s and transport is not None and not transport.is_closing():
                return connection
            connection.abort()
        return None

    async def connect(self, address: Address) -> UpstreamConnection:
        """A fresh connection.

        Raises:
            OSError: refused, unreachable, not in time (TimeoutError), or the bound is reached (PoolFull).
        """
        frontend = self._frontends.get(address)
        if frontend is None:
            frontend = self._frontends[address] = _Frontend(self._limits.max_idle, self._clock)
        if frontend.open >= self._limits.max_open:
            raise PoolFull(f"{frontend.open} connections are open to {address[0]}:{address[1]}")
        host, port, tls = address
        frontend.open += 1
        connection = UpstreamConnection(frontend)
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, host, port, ssl=self._context() if tls else None)
        except BaseException:  # a cancelled wait, too, must not leave a connection behind
            connection.abort()  # whoever waited has left at the moment when it was there
            raise
        finally:
            frontend.open -= 1
        return connection

    def forget(self, address: Address) -> None:
        """Closes the idle connections to a frontend that is lost."""
        frontend = self._frontends.get(address)
        if frontend is not None:
            frontend.close_idle()

    def close(self) -> None:
        """Closes what is idle; connections in use end with their requests."""
        for frontend in self._frontends.values():
            frontend.close_idle()

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls
