"""A stream that leaves a living datacenter: held still for a moment, so that what goes on elsewhere begins where it is.
"""

from edge_api.hot.relay import StreamRelay
from edge_api.upstream.connection import Headers, UpstreamConnection


class Hold:
    """Stands between a stream's datacenter and its relay: what comes meanwhile is kept, and given to the relay if the
    stream stays after all. If it leaves, nobody misses it: the next datacenter says it again."""

    __slots__ = ("_connection", "_data", "_ended", "_relay")

    def __init__(self, connection: UpstreamConnection, relay: StreamRelay) -> None:
        self._connection, self._relay = connection, relay
        self._data: list[bytes] = []
        self._ended: tuple[str, bool] | None = None
        connection.sink = self
        connection.pause()

    def on_head(self, status: int, headers: Headers) -> None:
        """The head came before."""

    def on_body(self, data: bytes) -> None:
        self._data.append(data)

    def on_end(self) -> None:
        self._ended = ("", True)

    def on_lost(self, reason: str, answered: bool) -> None:
        self._ended = (reason, answered)

    def drop(self) -> None:
        """What was kept is not wanted; the connection is the relay's again, to be given up."""
        if self._ended is None:
            self._connection.sink = self._relay

    def release(self) -> None:
        """The stream stays: nothing of it was lost."""
        self.drop()
        for data in self._data:
            self._relay.on_body(data)
        if self._ended is not None:
            self._relay.on_lost(*self._ended)
        elif not self._relay.is_paused:
            self._connection.resume()
