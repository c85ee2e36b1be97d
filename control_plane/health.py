"""`/healthz` (the process lives), `/readyz` (the database answers) and `/metrics`: open to anyone on the network."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from control_plane.context import Context
from control_plane.contracts.version import RELEASE
from control_plane.errors import DatabaseAway

READY_DEADLINE_S = 2.0

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process lives."""
    return {"status": "alive", "release": RELEASE}


@router.get("/readyz")
async def readyz(context: Context) -> dict[str, str]:
    """Whether requests can be served: 503 while Postgres does not answer."""
    if not await context.db.is_reachable(READY_DEADLINE_S):
        raise DatabaseAway("the database does not answer")
    return {"status": "ready", "release": RELEASE}


@router.get("/metrics")
async def metrics(context: Context) -> Response:
    """Prometheus metrics: this replica's own, and what the database holds of the fleet."""
    fleet = await context.board.text()
    return Response(generate_latest() + fleet, media_type=CONTENT_TYPE_LATEST)
