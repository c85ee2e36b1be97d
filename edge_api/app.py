"""The edge's cold routes: models, accounts, health, readiness, metrics. What is hot never gets here.

Every error is OpenAI-shaped and every answer has an `x-request-id`, whatever the path.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from control_plane.contracts import ids
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.version import RELEASE
from edge_api import errors
from edge_api.account.desk import AccountDesk
from edge_api.account.routes import BILLED_TEAM, account_routes
from edge_api.dialects.messages import MESSAGES
from edge_api.dialects.plain import CHAT
from edge_api.errors import Refusal
from edge_api.listings.quality import Quality
from edge_api.metrics import Metrics
from edge_api.model_routes import READ, model_routes
from edge_api.open_requests import OpenRequests
from edge_api.override.routes import OverrideDesk, override_routes
from edge_api.routing.table import RoutingTable
from edge_api.snapshot.holder import TableHolder

PREFIXES = ("/v1", "/api/v1")
ANTHROPIC_PATHS = tuple(f"{prefix}/messages" for prefix in PREFIXES)
REQUEST_ID = "meridian.request_id"  # of the scope

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ColdParts:
    """What the cold routes read. `problem` says what keeps this edge from its control plane, empty if nothing does;
    `hot_routes` are the paths that the protocol serves itself, by POST. Without an `account` desk, for want of a
    control plane to ask, there are no routes about keys. `quality` is told of every usage record. `is_leaving`: the
    edge was told to end, and still serves. Without an `override` desk it takes no operator's orders."""

    holder: TableHolder
    open_requests: OpenRequests
    metrics: Metrics
    problem: Callable[[], str]
    hot_routes: Iterable[str]
    account: AccountDesk | None = None
    override: OverrideDesk | None = None
    quality: Quality = field(default_factory=lambda: Quality(SystemClock()))
    is_leaving: Callable[[], bool] = lambda: False


Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def build_app(parts: ColdParts, lifespan: Lifespan | None = None) -> ASGIApp:
    """The ASGI app of the cold routes."""
    app = FastAPI(title="Meridian", version=RELEASE, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    for prefix in PREFIXES:
        app.include_router(model_routes(lambda: _table(parts), parts.quality), prefix=prefix)
        if parts.account is not None:
            app.include_router(account_routes(parts.account), prefix=prefix)
    if parts.override is not None:
        app.include_router(override_routes(parts.override))
    app.include_router(_health(parts))
    _install_errors(app, parts)
    return RequestIds(app)


def _health(parts: ColdParts) -> APIRouter:
    router = APIRouter()

    @router.api_route("/healthz", methods=READ)
    async def healthz() -> dict[str, str]:
        return {"status": "alive", "release": RELEASE}

    @router.api_route("/readyz", methods=READ)
    async def readyz() -> dict[str, Any]:
        """Ready once there is a table, whatever becomes of the control plane after that, until the edge is to end."""
        table = _table(parts)
        if parts.is_leaving():
            raise Refusal(errors.NOT_READY, "this edge ends soon: send it nothing new")
        return {"status": "ready", "snapshot": {"lineage": table.lineage, "version": table.version},
                "control_plane": parts.problem() or "reachable"}

    @router.api_route("/metrics", methods=READ)
    async def metrics() -> Response:
        for datacenter_id, count in parts.open_requests.counts().items():
            parts.metrics.open_requests.labels(datacenter_id).set(count)
        return Response(parts.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def _table(parts: ColdParts) -> RoutingTable:
    table = parts.holder.current
    if table is None:
        raise Refusal(errors.NOT_READY, f"this edge has no routing snapshot yet: {parts.problem() or 'waiting for it'}")
    return table


def _install_errors(app: FastAPI, parts: ColdParts) -> None:
    hot = sorted(parts.hot_routes)
    accounts = ["/v1/key", "/v1/credits", "/v1/generation"] if parts.account else []
    read = ["/v1/models", "/v1/models/{model}", "/v1/models/{model}/endpoints", "/v1/providers/openrouter/models",
            *accounts]
    posted = [path for path in hot if path.startswith("/v1/")]
    offered = ", ".join([*(f"POST {path}" for path in posted), *(f"GET {path}" for path in read)])

    async def on_refusal(request: Request, refusal: Exception) -> Response:
        if not isinstance(refusal, Refusal):
            raise refusal
        return _answer(request, refusal)

    async def on_http_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        path, method = request.url.path, request.method
        if error.status_code == 405 or path in hot:
            allowed = "POST" if path in hot else (error.headers or {}).get("allow", "GET")
            refusal = Refusal(errors.METHOD_NOT_ALLOWED, f"{path} does not take {method}; it takes {allowed}")
            return _answer(request, refusal, {"allow": allowed})
        return _answer(request, Refusal(
            errors.ROUTE_NOT_FOUND,
            f"there is no {method} {path[:200]}; there is {offered}, and each under /api/v1 as well"))

    async def on_fault(request: Request, error: Exception) -> Response:
        log.error("cold_route_failed", path=request.url.path[:200], exc_info=error)
        return _answer(request, Refusal(
            errors.INTERNAL_ERROR, "the edge failed to answer; this is our fault and was logged"))

    app.add_exception_handler(Refusal, on_refusal)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_fault)


def _answer(request: Request, refusal: Refusal, extra: dict[str, str] | None = None) -> Response:
    """The refusal, in the shape that the clients of its path know."""
    headers = {name.decode(): value.decode() for name, value in refusal.headers()}
    dialect = MESSAGES if request.url.path.startswith(ANTHROPIC_PATHS) else CHAT
    status, body = dialect.refusal(refusal, request.scope[REQUEST_ID])
    return Response(body, status, headers | (extra or {}), media_type="application/json")


class RequestIds:
    """Names every answer, outermost, so that the answer to a fault is named, too; and once a key was believed, the team
    that it bills."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[REQUEST_ID] = ids.uuid7()
        request_id = f"req_{scope[REQUEST_ID].hex}".encode()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Anthropic's SDK reads `request-id`, OpenAI's `x-request-id`.
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id),
                                      (b"request-id", request_id)]
                if BILLED_TEAM in scope:
                    message["headers"].append((b"x-billed-team", scope[BILLED_TEAM].encode()))
            await send(message)

        await self._app(scope, receive, named)
