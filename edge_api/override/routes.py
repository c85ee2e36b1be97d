"""`/edge/v1/overrides` on this edge's own port. The order proves itself; who lists orders signs the request."""

from collections.abc import Callable

import structlog
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from control_plane.contracts.clock import Clock
from control_plane.contracts.override import (
    MAX_BODY_BYTES,
    PATH,
    DatacenterStanding,
    EdgeStanding,
    OverrideAnswer,
    OverrideOutcome,
    SignedOverride,
)
from control_plane.contracts.signing import BadSignature, Nonces, NotSigned, SignedRequest, claimed_identity
from control_plane.contracts.wire import Wire
from edge_api.identity import ControlPlaneLink
from edge_api.override.board import Overrides
from edge_api.snapshot.holder import TableHolder

STATUS = {
    OverrideOutcome.TAKEN: 200, OverrideOutcome.KNOWN: 200, OverrideOutcome.MALFORMED: 422,
    OverrideOutcome.NOT_BELIEVED: 403, OverrideOutcome.WRONG_EDGE: 403, OverrideOutcome.TOO_MANY: 429,
    OverrideOutcome.NOT_READY: 503, OverrideOutcome.UNKNOWN_DATACENTER: 404,
}

log = structlog.get_logger()


class OverrideDesk:
    """Owns what the routes need: the orders, who this edge is, and the nonces of those who ask."""

    def __init__(self, overrides: Overrides, holder: TableHolder, link: ControlPlaneLink, clock: Clock,
                 problem: Callable[[], str]) -> None:
        self.overrides = overrides
        self._holder, self._link, self._clock, self._problem = holder, link, clock, problem
        self._nonces = Nonces(10_000)

    async def take(self, body: bytes) -> OverrideAnswer:
        """What becomes of the order in `body`."""
        name = self._link.identity.name if self._link.identity else ""
        try:
            signed = SignedOverride.model_validate_json(body)
        except ValidationError as error:
            return OverrideAnswer(edge=name, outcome=OverrideOutcome.MALFORMED,
                                  message=f"that is no signed order: {error.error_count()} faults")
        try:
            return await self.overrides.take(signed)
        except OSError as error:
            log.error("override_not_stored", error=str(error))
            return OverrideAnswer(edge=name, outcome=OverrideOutcome.NOT_READY,
                                  message=f"the edge cannot keep the order on its disk: {error.strerror}")

    def check(self, request: Request) -> None:
        """Whether an operator whose key the snapshot in use knows signed this request.

        Raises:
            NotSigned, BadSignature: nobody did.
        """
        known = self.overrides.keys().get(claimed_identity(request.headers))
        if known is None:
            raise BadSignature("the snapshot in use knows no such operator's key")
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        SignedRequest(request.method, target, b"").check(request.headers, known[0], self._clock, self._nonces)

    def standing(self) -> EdgeStanding:
        """What this edge routes by now."""
        identity, snapshot, routed = self._link.identity, self._holder.snapshot, self._holder.routed
        return EdgeStanding(
            edge=identity.name if identity else "", region=identity.region if identity else "",
            lineage=snapshot.lineage if snapshot else 0, version=snapshot.version if snapshot else 0,
            control_plane=self._problem(),
            datacenters=[DatacenterStanding(id=place.id, state=place.state, weight=place.weight)
                         for place in (routed.datacenters if routed else [])],
            overrides=self.overrides.views())


def override_routes(desk: OverrideDesk) -> APIRouter:
    """The routes over one desk."""
    router = APIRouter()

    @router.post(PATH)
    async def give(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return _json(OverrideAnswer(edge="", outcome=OverrideOutcome.MALFORMED,
                                            message=f"an order has at most {MAX_BODY_BYTES} bytes"), 413)
        answer = await desk.take(bytes(body))
        return _json(answer, STATUS.get(answer.outcome, 409))

    @router.get(PATH)
    async def listing(request: Request) -> Response:
        try:
            desk.check(request)
        except (NotSigned, BadSignature) as error:
            log.warning("override_listing_refused", error=str(error))
            return _json(OverrideAnswer(edge="", outcome=OverrideOutcome.NOT_BELIEVED, message=str(error)), 401)
        return _json(desk.standing(), 200)

    return router


def _json(answer: Wire, status: int) -> Response:
    return Response(answer.model_dump_json(), status, media_type="application/json")
