"""What happens around every request, as plain ASGI: a size limit, a deadline, an access log and metrics.

The access log names method, route, status and duration. Query strings, headers and bodies are never in it.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog

from control_plane import errors, metrics
from control_plane.contracts.clock import Clock
from control_plane.errors import TooLarge, Unavailable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = structlog.get_logger()

QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


class Limits:
    """Refuses bodies over `max_body_bytes` and ends requests after `deadline_s`."""

    def __init__(self, app: App, *, max_body_bytes: int, deadline_s: float) -> None:
        self._app, self._max_body_bytes, self._deadline_s = app, max_body_bytes, deadline_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _content_length(scope) > self._max_body_bytes:
            await _refuse(self._too_large(), scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with asyncio.timeout(self._deadline_s) as deadline:
                await self._app(scope, self._counted(receive), watched)
        except TooLarge as error:
            await _refuse(error, scope, receive, send)
        except TimeoutError:
            if started or not deadline.expired():
                raise
            late = Unavailable(f"not answered within {self._deadline_s:g} s", code="deadline")
            await _refuse(late, scope, receive, send)

    def _counted(self, receive: Receive) -> Receive:
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self._max_body_bytes:
                raise self._too_large()
            return message

        return counted

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body is larger than {self._max_body_bytes} bytes")


class AccessLog:
    """One log line and two metrics a request."""

    def __init__(self, app: App, *, clock: Clock) -> None:
        self._app, self._clock = app, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in QUIET:
            await self._app(scope, receive, send)
            return
        started_s, status = self._clock.monotonic_s(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            self._note(scope, status, self._clock.monotonic_s() - started_s)

    def _note(self, scope: Scope, status: int, duration_s: float) -> None:
        route, method = getattr(scope.get("route"), "path", "unrouted"), scope["method"]
        metrics.REQUESTS.labels(route, method, status).inc()
        metrics.REQUEST_DURATION_S.labels(route).observe(duration_s)
        log.info("request", method=method, route=route, status=status, duration_ms=round(duration_s * 1000, 1))


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _refuse(error: errors.Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    await errors.answer(error.status, error.problem)(scope, receive, send)
