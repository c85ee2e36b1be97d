"""An event loop whose clock jumps over every wait, and whose connections never leave the process: a deadline of minutes
costs a fuzzer nothing, so it can look at what becomes of a request in the end.
"""

import asyncio
import selectors
from collections.abc import Callable, Iterable
from typing import Any

Answerer = Callable[["UpstreamTransport", bytes], None]


class _Skipping(selectors.DefaultSelector):
    """Waits for nothing; counts what would have been waited, in seconds."""

    skipped_s = 1_000.0

    def select(self, timeout_s: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.skipped_s += timeout_s or 0.0
        return super().select(0)


class SkippedTime(asyncio.SelectorEventLoop):
    """Its time is what it would have waited. Whoever connects reaches `answers`. It is a clock, too."""

    def __init__(self, answers: Answerer) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)
        self._clock_resolution = 1e-6  # a billionth is lost among the digits of a time that has been skipped for long
        self.answers = answers

    def time(self) -> float:
        return self._skipping.skipped_s

    def monotonic_s(self) -> float:
        return self.time()

    def time_s(self) -> float:
        return 1_800_000_000.0 + self.time()

    async def create_connection(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        protocol = protocol_factory()
        transport = UpstreamTransport(self, protocol)
        protocol.connection_made(transport)
        return transport, protocol


class _Held(asyncio.Transport):
    """What both ends of a connection have in common: it is open until it is closed."""

    def __init__(self, loop: SkippedTime, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.loop, self.protocol = loop, protocol
        self.is_closed = self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))


class UpstreamTransport(_Held):
    """The edge's end of a connection to a datacenter."""

    def write(self, data: Any) -> None:
        if not self.is_closed:
            self.loop.answers(self, bytes(data))

    def say(self, data: bytes, then: Callable[[], None] | None = None) -> None:
        """Sends this to the edge, a little later."""
        self.loop.call_soon(self._arrive, data, then)

    def _arrive(self, data: bytes, then: Callable[[], None] | None) -> None:
        if self.is_closed:
            return
        if self.is_paused:
            self.loop.call_later(0.1, self._arrive, data, then)
            return
        try:
            if data:
                self.protocol.data_received(data)
        except Exception as error:  # as a real loop does
            self.loop.call_exception_handler({"message": "data_received failed", "exception": error})
            self.close()
        if then is not None:
            then()


class ClientTransport(_Held):
    """The edge's end of a client's connection. One that `takes` only so many bytes reads no more after that."""

    def __init__(self, loop: SkippedTime, protocol: asyncio.Protocol, takes: int = 1 << 30) -> None:
        super().__init__(loop, protocol)
        self.written = bytearray()
        self.is_ended = False
        self._takes = takes

    def write(self, data: Any) -> None:
        if self.is_closed or self.is_ended:
            return
        self.written += data
        if self.get_write_buffer_size() > 0:
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return max(len(self.written) - self._takes, 0)

    def close(self) -> None:
        if not self.get_write_buffer_size():  # as a real one, it waits until all is written
            super().close()

    def abort(self) -> None:
        super().close()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_ended = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 6)}.get(name, default)
