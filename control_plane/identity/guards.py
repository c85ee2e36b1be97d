"""What a route declares to say who may call it. A route without one of these fails a test.

``caller: AgentCaller`` or ``EdgeCaller``: a machine whose signature fits. ``operator: Reader``, ``Operator`` or
``Admin``: an operator token with at least that scope (read < operate < admin).
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from control_plane.audit import service as audit
from control_plane.context import AppContext, Context
from control_plane.contracts import ids
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.operator import OperatorScope
from control_plane.contracts.signing import SignedRequest
from control_plane.errors import Forbidden, Unauthenticated
from control_plane.identity import repository
from control_plane.identity.cache import Machine

RANK = {OperatorScope.READ: 0, OperatorScope.OPERATE: 1, OperatorScope.ADMIN: 2}
OPERATOR_PREFIX = "oper_meridian_"


@dataclass(frozen=True, slots=True)
class OperatorIdentity:
    """An operator, by token. `actor` is the name that the audit log keeps."""

    token_id: str
    name: str
    scopes: frozenset[OperatorScope]

    @property
    def actor(self) -> str:
        return f"operator:{self.name}"

    def may(self, scope: OperatorScope) -> bool:
        return any(RANK[held] >= RANK[scope] for held in self.scopes)


async def agent(request: Request, context: Context) -> Machine:
    """The agent that signed this request."""
    return await _machine(request, context, IdentityKind.AGENT)


async def edge(request: Request, context: Context) -> Machine:
    """The edge that signed this request."""
    return await _machine(request, context, IdentityKind.EDGE)


async def reader(request: Request, context: Context) -> OperatorIdentity:
    """An operator who may read."""
    return await _operator(request, context, OperatorScope.READ)


async def operator(request: Request, context: Context) -> OperatorIdentity:
    """An operator who may operate the fleet."""
    return await _operator(request, context, OperatorScope.OPERATE)


async def admin(request: Request, context: Context) -> OperatorIdentity:
    """An operator who may do everything."""
    return await _operator(request, context, OperatorScope.ADMIN)


AgentCaller = Annotated[Machine, Depends(agent)]
EdgeCaller = Annotated[Machine, Depends(edge)]
Reader = Annotated[OperatorIdentity, Depends(reader)]
Operator = Annotated[OperatorIdentity, Depends(operator)]
Admin = Annotated[OperatorIdentity, Depends(admin)]


def bearer_token(request: Request) -> str:
    """The token of the `Authorization: Bearer` header.

    Raises:
        Unauthenticated: there is none.
    """
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("send a token: `Authorization: Bearer …`")
    return token.strip()


async def operator_of(token: str, context: AppContext) -> OperatorIdentity:
    """The operator who holds `token`.

    Raises:
        Unauthenticated: nobody does, or it ended.
    """
    if token.startswith(OPERATOR_PREFIX) and ids.is_well_formed_secret(token):
        async with context.db.begin() as session:
            row = await repository.operator_token(session, ids.secret_digest(token))
        if row is not None:
            return OperatorIdentity(row.id, row.name, frozenset(map(OperatorScope, row.scopes)))
    raise Unauthenticated("the operator token is unknown, revoked or expired")


async def _operator(request: Request, context: AppContext, scope: OperatorScope) -> OperatorIdentity:
    found = await operator_of(bearer_token(request), context)
    if not found.may(scope):
        await _note_denial(request, context, found, scope)
        raise Forbidden(f"this needs an operator token with the scope {scope.value!r}")
    return found


async def _note_denial(request: Request, context: AppContext, who: OperatorIdentity, scope: OperatorScope) -> None:
    """Somebody known tried what is not theirs to do: that belongs into the log, as much as what was done."""
    what = f"{request.method} {request.scope['route'].path}"
    if not context.denials.is_news(who.token_id, what, context.clock.monotonic_s()):
        return
    async with context.db.begin() as session:
        audit.record(session, actor=who.actor, action="access.deny", target=f"operator_token:{who.token_id}",
                     after={"asked": what, "needed": scope.value, "held": sorted(held.value for held in who.scopes)})


async def _machine(request: Request, context: AppContext, kind: IdentityKind) -> Machine:
    path, query = request.scope["raw_path"].decode(), request.scope["query_string"].decode()
    signed = SignedRequest(request.method, f"{path}?{query}" if query else path, await request.body())
    machine = await context.identities.verify(signed, request.headers)
    if machine.kind is not kind:
        raise Forbidden(f"only an {kind.value} may call this; {machine.id} is an {machine.kind.value}")
    return machine
