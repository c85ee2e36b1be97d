"""Who may read a team's own figures: a key of that team with `usage:read`, or an operator who may read.

Another team's id answers 404, like one that does not exist, so that nobody can find out who is a customer.
"""

from typing import Annotated

from fastapi import Depends, Request

from control_plane.context import Context
from control_plane.contracts import ids
from control_plane.contracts.keys import Scope
from control_plane.errors import Forbidden, NotFound, Unauthenticated
from control_plane.identity.guards import OPERATOR_PREFIX, bearer_token, operator_of
from control_plane.tenancy import service
from control_plane.tenancy.models import Team


async def team_reader(team_id: str, request: Request, context: Context) -> Team:
    """The team of the path, which the caller may read.

    Raises:
        Unauthenticated: an unknown, revoked or expired token.
        Forbidden: a key without `usage:read`.
        NotFound: no such team, or not the caller's.
    """
    token = bearer_token(request)
    caller_team_id = None
    if token.startswith(OPERATOR_PREFIX):
        await operator_of(token, context)  # every scope includes reading
    else:
        caller_team_id = await _team_of_key(token, context)
    async with context.db.begin() as session:
        team = await service.team_named(session, team_id)
    if caller_team_id not in (None, team.id):
        raise NotFound(f"there is no team {team_id!r}")
    return team


TeamReader = Annotated[Team, Depends(team_reader)]


async def _team_of_key(token: str, context: Context) -> str:
    try:
        async with context.db.begin() as session:
            key = await service.living_key(session, ids.secret_digest(token))
    except NotFound as error:
        raise Unauthenticated("the key is unknown, revoked or expired") from error
    if Scope.USAGE_READ.value not in key.scopes:
        raise Forbidden(f"this needs a key with the scope {Scope.USAGE_READ.value!r}")
    return key.team_id
