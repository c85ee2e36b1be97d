"""`/operator/v1/operations`, and `/operator/v1/automation`."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from control_plane.context import Context
from control_plane.contracts.operations import (
    AutomationView,
    FreezeRequest,
    OperationAnswer,
    OperationRequest,
    OperationState,
    OperationView,
    UnfreezeRequest,
)
from control_plane.contracts.operator import Page
from control_plane.identity.guards import Operator, Reader
from control_plane.operations import freezing, service, steering
from control_plane.operations.pacing import pace_of
from control_plane.paging import Paged

router = APIRouter(prefix="/operator/v1", tags=["operations"])

IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=200)]


@router.post("/operations")
async def create(asked: OperationRequest, caller: Operator, context: Context, response: Response,
                 idempotency_key: IdempotencyKey = None) -> OperationAnswer:
    """Starts an operation (201), or finds the one that this asks for again (200); a dry run only plans."""
    async with context.db.begin() as session:
        outcome = await service.create(session, asked, caller.actor, idempotency_key, pace=pace_of(context.settings))
    if outcome.refusal is not None:
        raise outcome.refusal
    response.status_code = 201 if outcome.is_new else 200
    return OperationAnswer(plan=outcome.plan, operation=outcome.operation)


@router.get("/operations")
async def listed(_: Reader, context: Context, asked: Paged, state: OperationState | None = None) -> Page[OperationView]:
    """Operations, the newest first."""
    async with context.db.begin() as session:
        return await service.listed(session, state, asked)


@router.get("/operations/{operation_id}")
async def get(operation_id: str, _: Reader, context: Context) -> OperationView:
    """One operation with its steps."""
    async with context.db.begin() as session:
        return await service.get(session, operation_id)


@router.post("/operations/{operation_id}/cancel")
async def cancel(operation_id: str, caller: Operator, context: Context) -> OperationView:
    """Ends an operation that is under way; a drain's traffic comes back at once."""
    async with context.db.begin() as session:
        return await steering.cancel(session, context.signing_key, operation_id, caller.actor)


@router.post("/operations/{operation_id}/pause")
async def pause(operation_id: str, caller: Operator, context: Context) -> OperationView:
    """Lets an operation stand still until it is resumed."""
    async with context.db.begin() as session:
        return await steering.pause(session, operation_id, caller.actor)


@router.post("/operations/{operation_id}/resume")
async def resume(operation_id: str, caller: Operator, context: Context) -> OperationView:
    """Lets a paused operation go on."""
    async with context.db.begin() as session:
        return await steering.resume(session, operation_id, caller.actor)


@router.post("/operations/{operation_id}/rollback")
async def rollback(operation_id: str, caller: Operator, context: Context) -> OperationView:
    """Undoes an operation that is under way by steps."""
    async with context.db.begin() as session:
        return await steering.rollback(session, context.signing_key, operation_id, caller.actor)


@router.get("/automation")
async def automation(_: Reader, context: Context) -> AutomationView:
    """Whether automation may act."""
    async with context.db.begin() as session:
        return await freezing.view(session)


@router.post("/automation/freeze")
async def freeze(asked: FreezeRequest, caller: Operator, context: Context) -> AutomationView:
    """Stops automation; operators go on."""
    async with context.db.begin() as session:
        return await freezing.freeze(session, asked, caller.actor)


@router.post("/automation/unfreeze")
async def unfreeze(asked: UnfreezeRequest, caller: Operator, context: Context) -> AutomationView:
    """Lets automation go on."""
    async with context.db.begin() as session:
        return await freezing.unfreeze(session, asked, caller.actor)
