"""The edge's cold routes: models, health, readiness, metrics. What is hot never gets here.

Every error is OpenAI-shaped and every answer has an `x-request-id`, whatever the path.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from control_plane.contracts import ids
from control_plane.contracts.version import RELEASE
from edge_api import errors
from edge_api.errors import Refusal
from edge_api.listing import describe, list_models
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.routing.table import RoutingTable
from edge_api.snapshot.holder import TableHolder

PREFIXES = ("/v1", "/api/v1")
READ = ["GET", "HEAD"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ColdParts:
    """What the cold routes read. `problem` says what keeps this edge from its control plane, empty if nothing does;
    `hot_routes` are the paths that the protocol serves itself, by POST."""

    holder: TableHolder
    open_requests: OpenRequests
    metrics: Metrics
    problem: Callable[[], str]
    hot_routes: Iterable[str]


Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def build_app(parts: ColdParts, lifespan: Lifespan | None = None) -> ASGIApp:
    """The ASGI app of the cold routes."""
    app = FastAPI(title="Meridian", version=RELEASE, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    for prefix in PREFIXES:
        app.include_router(_models(parts), prefix=prefix)
    app.include_router(_health(parts))
    _install_errors(app, parts)
    return RequestIds(app)


def _models(parts: ColdParts) -> APIRouter:
    router = APIRouter()

    @router.api_route("/models", methods=READ)
    async def models() -> dict[str, Any]:
        return list_models(_table(parts))

    @router.api_route("/models/{model_id:path}", methods=READ)
    async def model(model_id: str) -> dict[str, Any]:
        found = _table(parts).models.get(model_id)
        if found is None:
            raise Refusal(errors.MODEL_NOT_FOUND, f"the model {model_id!r} does not exist; GET /v1/models lists all",
                          param="model")
        return describe(found)

    return router


def _health(parts: ColdParts) -> APIRouter:
    router = APIRouter()

    @router.api_route("/healthz", methods=READ)
    async def healthz() -> dict[str, str]:
        return {"status": "alive", "release": RELEASE}

    @router.api_route("/readyz", methods=READ)
    async def readyz() -> dict[str, Any]:
        """Ready once there is a table, whatever becomes of the control plane after that."""
        table = _table(parts)
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
    offered = ", ".join([*(f"POST {path}" for path in hot), "GET /v1/models", "GET /v1/models/{model}"])

    async def on_refusal(request: Request, refusal: Exception) -> Response:
        if not isinstance(refusal, Refusal):
            raise refusal
        return _answer(refusal)

    async def on_http_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        path, method = request.url.path, request.method
        if error.status_code == 405 or path in hot:
            allowed = "POST" if path in hot else (error.headers or {}).get("allow", "GET")
            refusal = Refusal(errors.METHOD_NOT_ALLOWED, f"{path} does not take {method}; it takes {allowed}")
            return _answer(refusal, {"allow": allowed})
        return _answer(Refusal(errors.ROUTE_NOT_FOUND, f"there is no {method} {path[:200]}; there is {offered}"))

    async def on_fault(request: Request, error: Exception) -> Response:
        log.error("cold_route_failed", path=request.url.path[:200], exc_info=error)
        return _answer(Refusal(errors.INTERNAL_ERROR, "the edge failed to answer; this is our fault and was logged"))

    app.add_exception_handler(Refusal, on_refusal)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_fault)


def _answer(refusal: Refusal, extra: dict[str, str] | None = None) -> Response:
    headers = {name.decode(): value.decode() for name, value in refusal.headers()}
    return Response(refusal.body(), refusal.status, headers | (extra or {}), media_type="application/json")


class RequestIds:
    """Names every answer, outermost, so that the answer to a fault is named, too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{ids.uuid7().hex}".encode()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, named)
