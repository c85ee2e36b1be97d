"""Begins a new lineage after the database was replaced by an older copy: one transaction, one audit event.

What was under way in the copy is closed: its operations, for nobody knows how far they got since, and the money that it
lent, for the edges that hold it have given it back or not, and tell only by what they ship. Generations are raised
above all that any agent has seen, so that what an agent observed of the lost history is never taken for the new one.
"""

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.audit import service as audit
from control_plane.billing import repository as billing
from control_plane.contracts.operations import OperationState
from control_plane.contracts.recovery import LineageView, Recovery, RecoveryRequest, RecoveryView, SignedRecovery
from control_plane.contracts.signing import SigningKey
from control_plane.db import database_time, notify
from control_plane.errors import Conflict
from control_plane.operations import advance, machine, scope
from control_plane.operations import repository as operations
from control_plane.operations.machine import OperationEvent
from control_plane.operations.models import Operation
from control_plane.routing import lineage, publisher, repository
from control_plane.routing.models import Recovery as RecoveryRow
from control_plane.topology.service import fleet_channel

WORDS = "the database was restored from an older copy while this was under way; look at the datacenter, then order anew"

log = structlog.get_logger()


async def view(session: AsyncSession) -> LineageView:
    """Where history stands, and what a recovery would close."""
    held_lineage, version = await repository.head(session)
    return LineageView(
        lineage=held_lineage, version=version, ahead=list(await lineage.ahead(session)),
        behind=list(await lineage.behind(session)),
        open_operations=[operation.id for operation in await operations.open_operations(session)],
        open_leases=await billing.count_open_leases(session))


async def recover(session: AsyncSession, key: SigningKey, asked: RecoveryRequest, actor: str) -> RecoveryView:
    """The new lineage; with `dry_run` what it would be, and nothing is changed.

    Raises:
        Conflict: nobody is ahead, so there is nothing to recover from.
    """
    before = await view(session)
    if not before.ahead and not asked.force and not asked.dry_run:
        raise Conflict("no edge and no agent has seen more than this database holds: there is nothing to recover from; "
                       "wait until they have synced, a minute, or use --force", code="nothing_to_recover")
    next_lineage = await repository.highest_lineage(session) + 1
    if asked.dry_run:
        return RecoveryView(lineage=next_lineage, version=None, recovered_at=None, before=before)
    await scope.read_locked(session)
    for operation in await operations.open_operations(session):
        await _fail(session, operation, actor)
    await repository.raise_generations(session)
    await billing.close_all_leases(session)
    now = await database_time(session)
    await repository.lock_head(session)
    order = Recovery(lineage=next_lineage, recovered_at_s=now.timestamp(), recovered_by=actor, reason=asked.reason)
    signed = SignedRecovery.seal(order, key)
    await repository.begin_lineage(session, RecoveryRow(
        lineage=next_lineage, reason=asked.reason, recovered_by=actor, recovered_at=now, body=signed.body,
        signature=signed.signature, key_id=signed.key_id))
    _, version = await publisher.publish(session, key, f"recovery:{next_lineage}")
    for fleet_id, *_ in await operations.fleets(session):
        await notify(session, fleet_channel(fleet_id))
    audit.record(session, actor=actor, action="lineage.raise", target=f"lineage:{next_lineage}", reason=asked.reason,
                 before=before.model_dump(mode="json"), after={"lineage": next_lineage, "version": version})
    log.warning("lineage_raised", lineage=next_lineage, version=version, ahead=len(before.ahead))
    return RecoveryView(lineage=next_lineage, version=version, recovered_at=now, before=before)


async def _fail(session: AsyncSession, operation: Operation, actor: str) -> None:
    locked = await operations.lock_operation(session, operation.id)
    if locked is None or locked.state not in machine.OPEN_OPERATIONS:
        return
    if locked.state is OperationState.PLANNED:
        locked.state = machine.move_operation(locked.state, OperationEvent.START)
    locked.error = WORDS
    await advance.close(session, locked, OperationEvent.FAIL, actor)
