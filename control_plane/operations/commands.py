"""Orders to fleets: issued by operations, handed over by the agent's sync, moved on by its acknowledgements."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import func
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts import ids
from control_plane.contracts.agent_sync import Command as Order
from control_plane.contracts.agent_sync import CommandAck
from control_plane.db import notify
from control_plane.operations import decision, machine, repository
from control_plane.operations.models import Command, Operation
from control_plane.topology.service import fleet_channel

OPERATIONS_CHANNEL = "operations"
"""What the runner waits for: an operation began, or something that one of them waits for was reported."""


async def report_arrived(session: AsyncSession) -> None:
    """Lets the operations that are under way look at a new report at once."""
    if await repository.has_open(session):
        await notify(session, OPERATIONS_CHANNEL)


async def is_moved(session: AsyncSession, datacenter_id: str) -> bool:
    """Whether an operation of the datacenter is under way."""
    return bool(await repository.claimants(session, [f"datacenter:{datacenter_id}"]))


async def any_open(session: AsyncSession) -> bool:
    """Whether any operation is under way."""
    return await repository.has_open(session)


async def announce(session: AsyncSession, fleet_ids: Sequence[str]) -> None:
    """Wakes the runner, and the polls of the fleets whose reports the new operation looks at."""
    for channel in (OPERATIONS_CHANNEL, *(fleet_channel(fleet_id) for fleet_id in fleet_ids)):
        await notify(session, channel)


async def issue(session: AsyncSession, operation: Operation, orders: Sequence[decision.Order]) -> None:
    """Gives each order that the operation has not given before, by fleet in order, because their rows get locked."""
    given = {decision.Order(one.kind, one.fleet_id, one.deployment_id, one.round)
             for one in await repository.commands_of(session, operation.id)}
    now = await repository.now(session)
    for order in sorted(set(orders) - given, key=lambda one: (one.fleet_id, one.kind, one.deployment_id, one.round)):
        session.add(Command(
            id=ids.new_id("cmd"), operation_id=operation.id, fleet_id=order.fleet_id,
            seq=await repository.next_command_seq(session, order.fleet_id), kind=order.kind,
            deployment_id=order.deployment_id, round=order.round, status=machine.CommandStatus.ISSUED,
            deadline_at=operation.deadline_at if order.deadline_s is None
            else now + timedelta(seconds=order.deadline_s)))
        await notify(session, fleet_channel(order.fleet_id))
    await session.flush()


async def hand_over(session: AsyncSession, fleet_id: str, epoch: int) -> tuple[list[Order], bool]:
    """A fleet's open orders under the lease of `epoch`, and whether any was not handed to that lease before."""
    rows = await repository.open_commands(session, fleet_id)
    are_new = False
    orders = []
    for command, left_s in rows:
        if command.epoch != epoch:
            command.epoch, are_new = epoch, True
        orders.append(Order(
            id=command.id, seq=command.seq, epoch=epoch, kind=command.kind, deadline_s=max(left_s, 0.0),
            deployment_id=command.deployment_id))
    return orders, are_new


async def acknowledge(session: AsyncSession, fleet_id: str, acks: Sequence[CommandAck]) -> None:
    """Moves a fleet's own commands on; what is unknown, another fleet's or closed is passed over."""
    if not acks:
        return
    rows = await repository.lock_commands(session, fleet_id, [ack.command_id for ack in acks])
    for ack in acks:
        command = rows.get(ack.command_id)
        if command is not None and command.status in machine.OPEN_COMMANDS:
            command.status = machine.acknowledge(command.status, ack.state)
            command.result = ack.result
            command.acked_at = func.clock_timestamp()


async def withdraw(session: AsyncSession, operation_id: str) -> None:
    """Closes what an operation ordered and nobody wants any more."""
    for command in await repository.commands_of(session, operation_id, lock=True):
        if command.status in machine.OPEN_COMMANDS:
            command.status = machine.CommandStatus.SUPERSEDED
            await notify(session, fleet_channel(command.fleet_id))
    await session.flush()
