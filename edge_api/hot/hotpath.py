"""What all connections of the hot path share."""

import ssl

from edge_api.hot.deadlines import Deadlines
from edge_api.hot.services import Services
from edge_api.upstream.pool import PoolLimits, UpstreamPool

DefaultHeaders = list[tuple[bytes, bytes]]


class HotPath:
    """Owns the upstream connections, the waits of all requests and clients, and the server's own headers as bytes."""

    def __init__(self, services: Services, tls: ssl.SSLContext | None = None) -> None:
        limits = services.limits
        self.services = services
        self.pool = UpstreamPool(PoolLimits(
            connect_timeout_s=limits.connect_timeout_s, idle_s=limits.pool_idle_s, max_idle=limits.pool_max_idle,
            max_open=limits.pool_max_open), services.clock, tls)
        self.first_byte = Deadlines(limits.first_byte_timeout_s)
        self.head_arrival = Deadlines(limits.header_timeout_s)
        self.body_pause = Deadlines(limits.body_pause_s)
        self.stalled_client = Deadlines(limits.client_stall_timeout_s)
        self._headers: DefaultHeaders = []
        self._rendered = b""

    def rendered(self, headers: DefaultHeaders) -> bytes:
        """The server's headers as bytes. uvicorn makes a new list of them every second."""
        if headers is not self._headers:
            self._headers = headers
            self._rendered = b"".join(b"%b: %b\r\n" % header for header in headers)
        return self._rendered
