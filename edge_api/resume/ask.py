"""Small questions to a datacenter beside its streams, over its pooled connections: one request, one deadline."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from edge_api.hot.sse import EventSplitter, EventTooLong
from edge_api.upstream.connection import Headers, UpstreamConnection
from edge_api.upstream.pool import Address, UpstreamPool

MAX_ANSWER_BYTES = 8 << 20
MAX_ERROR_BYTES = 64 * 1024

T = TypeVar("T")


class NoAnswer(Exception):
    """The question was not answered: not sent, lost, not in time, refused or not understood. Safe to ask elsewhere.
    `status` is the answer's, 0 if none came; `body` the first of what a refusal said."""

    def __init__(self, reason: str, status: int = 0, body: bytes = b"") -> None:
        super().__init__(reason)
        self.status, self.body = status, body


class Lost(NoAnswer):
    """The connection broke. `answered`: some byte of the answer had come."""

    def __init__(self, reason: str, answered: bool) -> None:
        super().__init__(reason)
        self.answered = answered


class Reply(ABC, Generic[T]):
    """The sink of an answer that is awaited. The first word counts."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.status = 0

    def say(self, value: T) -> None:
        if not self.answer.done():
            self.answer.set_result(value)

    def fail(self, error: NoAnswer) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def on_head(self, status: int, headers: Headers) -> None:
        self.status = status

    @abstractmethod
    def on_body(self, data: bytes) -> None: ...

    @abstractmethod
    def on_end(self) -> None: ...

    def on_lost(self, reason: str, answered: bool) -> None:
        self.fail(Lost(reason, answered))


class WholeReply(Reply[bytes]):
    """The body of an answer whose status is 200."""

    def __init__(self) -> None:
        super().__init__()
        self._body = bytearray()

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > MAX_ANSWER_BYTES:
            self.fail(NoAnswer("the answer is too long", self.status))

    def on_end(self) -> None:
        if self.status == 200:
            self.say(bytes(self._body))
        else:
            self.fail(NoAnswer(f"the answer's status is {self.status}", self.status, bytes(self._body)))


class FirstEvent(Reply[bytes]):
    """The first event of that type in a stream."""

    def __init__(self, name: bytes) -> None:
        super().__init__()
        self._lead = b"event: " + name + b"\n"
        self._splitter = EventSplitter(MAX_ANSWER_BYTES)
        self._error = b""

    def on_body(self, data: bytes) -> None:
        if self.status != 200:
            self._error = (self._error + data)[:MAX_ERROR_BYTES]
            return
        try:
            for event in self._splitter.feed(data):
                if event.startswith(self._lead):
                    self.say(event)
        except EventTooLong:
            self.fail(NoAnswer("an event is too long", self.status))

    def on_end(self) -> None:
        reason = "the answer has no such event" if self.status == 200 else f"the answer's status is {self.status}"
        self.fail(NoAnswer(reason, self.status, self._error))


async def ask(pool: UpstreamPool, address: Address, path: str, body: bytes, new_reply: Callable[[], Reply[T]],
              deadline_s: float, headers: bytes = b"") -> T:
    """Sends a request and waits for what its reply has to say; whatever else would come is not wanted, and its
    datacenter is told so by the end of the connection. `headers` are whole lines.

    Raises:
        NoAnswer: no connection, no answer, or none within `deadline_s`.
    """
    head = (b"POST %b HTTP/1.1\r\nhost: %b:%d\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
            % (path.encode(), address[0].encode(), address[1], headers, len(body)))
    try:
        async with asyncio.timeout(deadline_s):
            pooled = pool.take(address)
            if pooled is not None:
                try:
                    return await _once(pooled, head, body, new_reply())
                except Lost as lost:
                    if lost.answered:
                        raise
            return await _once(await pool.connect(address), head, body, new_reply())
    except OSError as error:  # a time-out is one, too
        raise NoAnswer(f"no answer: {type(error).__name__}") from error


async def _once(connection: UpstreamConnection, head: bytes, body: bytes, reply: Reply[T]) -> T:
    try:
        connection.send(head, [body], len(body), reply)
        return await reply.answer
    finally:
        connection.abandon(reply)
