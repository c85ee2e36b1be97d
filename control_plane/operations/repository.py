"""SQL of the operations slice. Times are the database's."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.agents.models import AgentLease, FleetView
from control_plane.contracts.operations import OperationKind, OperationState, StepState
from control_plane.operations.machine import OPEN_COMMANDS, OPEN_OPERATIONS
from control_plane.operations.models import Automation, Command, Operation, OperationClaim, OperationStep
from control_plane.operations.playbooks.playbook import StepPlan
from control_plane.topology.models import Deployment, Fleet


async def now(session: AsyncSession) -> datetime:
    """The database's clock at this moment, not at the transaction's start."""
    found: datetime = (await session.execute(select(func.clock_timestamp()))).scalar_one()
    return found


async def operation(session: AsyncSession, operation_id: str) -> Operation | None:
    return await session.get(Operation, operation_id)


def planned_step(operation_id: str, seq: int, plan: StepPlan) -> OperationStep:
    """A step that has yet to begin."""
    return OperationStep(operation_id=operation_id, seq=seq, name=plan.name, state=StepState.PENDING,
                         detail=plan.detail, memory={"baseline": dict(plan.baseline)} if plan.baseline else {})


async def lock_operation(session: AsyncSession, operation_id: str) -> Operation | None:
    """The operation as it is now, held until the transaction ends. Its datacenter is locked before it."""
    query = select(Operation).where(Operation.id == operation_id).with_for_update(key_share=True)
    return (await session.execute(query.execution_options(populate_existing=True))).scalar_one_or_none()


async def open_operations(session: AsyncSession) -> Sequence[Operation]:
    """All that are under way."""
    return (await session.execute(select(Operation).where(Operation.state.in_(OPEN_OPERATIONS)).order_by(
        Operation.id).execution_options(populate_existing=True))).scalars().all()


async def claimants(session: AsyncSession, resources: Sequence[str]) -> Sequence[Operation]:
    """The open operations that have one of the resources to themselves, the oldest first."""
    held = select(OperationClaim.operation_id).where(OperationClaim.resource.in_(resources))
    query = select(Operation).where(Operation.id.in_(held)).order_by(Operation.id)
    return (await session.execute(query)).scalars().all()


async def release_claims(session: AsyncSession, operation_id: str) -> None:
    await session.execute(delete(OperationClaim).where(OperationClaim.operation_id == operation_id))


async def automation(session: AsyncSession, lock: bool = False) -> Automation:
    """The row that says whether automation stands still."""
    query = select(Automation).execution_options(populate_existing=True)
    return (await session.execute(query.with_for_update() if lock else query)).scalar_one()


async def has_open(session: AsyncSession) -> bool:
    query = select(select(Operation.id).where(Operation.state.in_(OPEN_OPERATIONS)).exists())
    return bool((await session.execute(query)).scalar_one())


async def by_idempotency_key(session: AsyncSession, requested_by: str, key: str) -> Operation | None:
    return (await session.execute(select(Operation).where(
        Operation.requested_by == requested_by, Operation.idempotency_key == key))).scalar_one_or_none()


async def newest_success(session: AsyncSession, kind: OperationKind, datacenter_id: str) -> Operation | None:
    """The newest operation of this kind and datacenter that succeeded."""
    query = select(Operation).where(
        Operation.kind == kind, Operation.datacenter_id == datacenter_id, Operation.state == OperationState.SUCCEEDED)
    return (await session.execute(query.order_by(Operation.id.desc()).limit(1))).scalar_one_or_none()


async def postpone_commands(session: AsyncSession, operation_id: str, by: timedelta) -> None:
    """Gives an operation's open orders as much more time."""
    await session.execute(update(Command).where(
        Command.operation_id == operation_id, Command.status.in_(OPEN_COMMANDS)).values(
        deadline_at=Command.deadline_at + by))


async def page(session: AsyncSession, state: OperationState | None, before_id: str | None,
               limit: int) -> Sequence[Operation]:
    """Operations from the newest backwards, starting below `before_id`."""
    query = select(Operation).order_by(Operation.id.desc()).limit(limit)
    if state is not None:
        query = query.where(Operation.state == state)
    if before_id is not None:
        query = query.where(Operation.id < before_id)
    return (await session.execute(query)).scalars().all()


async def steps(session: AsyncSession, operation_ids: Sequence[str]) -> dict[str, list[OperationStep]]:
    """Each operation's steps in order."""
    rows = (await session.execute(select(OperationStep).where(OperationStep.operation_id.in_(operation_ids)).order_by(
        OperationStep.operation_id, OperationStep.seq))).scalars().all()
    found: dict[str, list[OperationStep]] = {operation_id: [] for operation_id in operation_ids}
    for row in rows:
        found[row.operation_id].append(row)
    return found


async def lease_open(session: AsyncSession, token: str, lease_s: float, limit: int) -> Sequence[str]:
    """Open operations that no replica works on, now leased under `token`; locked rows are passed over."""
    free = or_(Operation.lock_expires_at.is_(None), Operation.lock_expires_at < func.clock_timestamp())
    due = select(Operation.id).where(Operation.state.in_(OPEN_OPERATIONS), free).order_by(Operation.id).limit(
        limit).with_for_update(skip_locked=True)
    return (await session.execute(update(Operation).where(Operation.id.in_(due.scalar_subquery())).values(
        lock_token=token, lock_expires_at=func.clock_timestamp() + timedelta(seconds=lease_s),
    ).returning(Operation.id))).scalars().all()


async def release(session: AsyncSession, operation_id: str, token: str) -> None:
    """Gives a lease back, unless another replica has it by now."""
    await session.execute(update(Operation).where(
        Operation.id == operation_id, Operation.lock_token == token).values(lock_token=None, lock_expires_at=None))


async def next_command_seq(session: AsyncSession, fleet_id: str) -> int:
    """The fleet's next sequence number; the fleet's row is held, so that numbers follow commit order."""
    return (await session.execute(update(Fleet).where(Fleet.id == fleet_id).values(
        command_seq=Fleet.command_seq + 1).returning(Fleet.command_seq))).scalar_one()


async def commands_of(session: AsyncSession, operation_id: str, lock: bool = False) -> Sequence[Command]:
    query = select(Command).where(Command.operation_id == operation_id).order_by(
        Command.fleet_id, Command.seq)
    if lock:
        query = query.with_for_update(key_share=True)
    return (await session.execute(query.execution_options(populate_existing=True))).scalars().all()


async def lock_commands(session: AsyncSession, fleet_id: str, command_ids: Sequence[str]) -> dict[str, Command]:
    """Those of the commands that are this fleet's, held until the transaction ends."""
    rows = (await session.execute(select(Command).where(
        Command.fleet_id == fleet_id, Command.id.in_(command_ids)).order_by(Command.id).with_for_update(
        key_share=True).execution_options(populate_existing=True))).scalars().all()
    return {row.id: row for row in rows}


async def open_commands(session: AsyncSession, fleet_id: str) -> Sequence[tuple[Command, float]]:
    """A fleet's open commands in order, with the seconds that each still has."""
    left = func.extract("epoch", Command.deadline_at - func.clock_timestamp())
    rows = (await session.execute(select(Command, left).where(
        Command.fleet_id == fleet_id, Command.status.in_(OPEN_COMMANDS)).order_by(Command.seq)
        .execution_options(populate_existing=True))).all()
    return [(row[0], float(row[1])) for row in rows]


async def fleets(session: AsyncSession) -> Sequence[tuple[str, str, bool, datetime | None]]:
    """Each fleet, its datacenter, whether its agent's lease is live, and when it last reported."""
    live = func.coalesce(AgentLease.expires_at > func.clock_timestamp(), False)
    rows = (await session.execute(
        select(Fleet.id, Fleet.datacenter_id, live, FleetView.observed_at)
        .outerjoin(AgentLease, AgentLease.fleet_id == Fleet.id)
        .outerjoin(FleetView, FleetView.fleet_id == Fleet.id).order_by(Fleet.id))).all()
    return [(row[0], row[1], row[2], row[3]) for row in rows]


async def deployments(session: AsyncSession) -> Sequence[Deployment]:
    """Every deployment as it is now."""
    return (await session.execute(select(Deployment).order_by(Deployment.id).execution_options(
        populate_existing=True))).scalars().all()


async def claims(session: AsyncSession, operation_id: str) -> Sequence[str]:
    """What an open operation has to itself."""
    return (await session.execute(select(OperationClaim.resource).where(
        OperationClaim.operation_id == operation_id).order_by(OperationClaim.resource))).scalars().all()
