"""`GET /key`, `/credits` and `/generation`, with a key. Each answer names the team that the key bills."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from control_plane.contracts.keys import Principal
from edge_api import errors
from edge_api.account.desk import AccountDesk
from edge_api.account.generation_id import parse_generation_id
from edge_api.account.shapes import credits_shape, generation_shape, key_shape
from edge_api.errors import Refusal

READ = ["GET", "HEAD"]
BILLED_TEAM = "meridian.billed_team"
"""Where the request's scope holds the team of a key that was believed."""


def account_routes(desk: AccountDesk) -> APIRouter:
    """The routes over one desk."""
    router = APIRouter()

    async def caller(request: Request) -> Principal:
        forwarded_for = (request.headers.getlist("x-forwarded-for") or [""])[-1]
        principal = await desk.principal(request.headers, request.client.host if request.client else "", forwarded_for)
        request.scope[BILLED_TEAM] = principal.team_id
        return principal

    @router.api_route("/key", methods=READ)
    async def key(principal: Annotated[Principal, Depends(caller)]) -> dict[str, Any]:
        return key_shape(await desk.key(principal))

    @router.api_route("/credits", methods=READ)
    async def credits(principal: Annotated[Principal, Depends(caller)]) -> dict[str, Any]:
        return credits_shape(await desk.credits(principal))

    @router.api_route("/generation", methods=READ)
    async def generation(principal: Annotated[Principal, Depends(caller)], id: str = "") -> dict[str, Any]:
        if not id:
            raise Refusal(errors.MISSING_PARAMETER, "name the generation: GET /v1/generation?id=gen_...", "id")
        request_id = parse_generation_id(id)
        if request_id is None:
            raise Refusal(errors.GENERATION_NOT_FOUND, "there is no such generation", "id")
        return generation_shape(await desk.generation(principal, request_id))

    return router
