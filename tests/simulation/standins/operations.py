"""Queries of operations, their steps, claims and commands."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from control_plane.contracts.operations import OperationKind, OperationState
from control_plane.operations import repository as operations
from control_plane.operations.machine import OPEN_COMMANDS, OPEN_OPERATIONS
from tests.simulation.database import Session
from tests.simulation.standins.register import of


@of(operations)
async def now(session: Session) -> datetime:
    await session.statement()
    return session.tables.now()


@of(operations)
async def lock_operation(session: Session, operation_id: str) -> Any:
    await session.statement()
    await session.hold(("operation", operation_id))
    return session.find("operation", operation_id, anew=True)


@of(operations)
async def open_operations(session: Session) -> Sequence[Any]:
    await session.statement()
    return [row for row in session.scan("operation") if row.state in OPEN_OPERATIONS]


@of(operations)
async def claimants(session: Session, resources: Sequence[str]) -> Sequence[Any]:
    await session.statement()
    held = {row.operation_id for row in session.scan("operation_claim", anew=False) if row.resource in resources}
    return [row for row in session.scan("operation", anew=False) if row.id in held]


@of(operations)
async def release_claims(session: Session, operation_id: str) -> None:
    await session.statement()
    for row in session.scan("operation_claim"):
        if row.operation_id == operation_id:
            await session.remove("operation_claim", row.resource)


@of(operations)
async def automation(session: Session, lock: bool = False) -> Any:
    await session.statement()
    if lock:
        await session.hold(("automation", True))
    return session.find("automation", True, anew=True)


@of(operations)
async def has_open(session: Session) -> bool:
    await session.statement()
    return any(row.state in OPEN_OPERATIONS for row in session.tables.table("operation").values()) or any(
        name == "operation" and row.state in OPEN_OPERATIONS for (name, _), row in session.written.items())


@of(operations)
async def by_idempotency_key(session: Session, requested_by: str, key: str) -> Any:
    await session.statement()
    return next((row for row in session.scan("operation", anew=False)
                 if (row.requested_by, row.idempotency_key) == (requested_by, key)), None)


@of(operations)
async def steps(session: Session, operation_ids: Sequence[str]) -> dict[str, list[Any]]:
    await session.statement()
    found: dict[str, list[Any]] = {operation_id: [] for operation_id in operation_ids}
    for row in session.scan("operation_step", anew=False):
        if row.operation_id in found:
            found[row.operation_id].append(row)
    return found


@of(operations)
async def lease_open(session: Session, token: str, lease_s: float, limit: int) -> Sequence[str]:
    await session.statement()
    now, leased = session.tables.now(), []
    for row in session.scan("operation"):
        is_free = row.lock_expires_at is None or row.lock_expires_at < now
        if row.state in OPEN_OPERATIONS and is_free and ("operation", row.id) not in session.tables.holders:
            row.lock_token, row.lock_expires_at = token, now + timedelta(seconds=lease_s)
            leased.append(row.id)
    await session.flush()
    return leased[:limit]


@of(operations)
async def release(session: Session, operation_id: str, token: str) -> None:
    await session.statement()
    await session.hold(("operation", operation_id))
    row = session.find("operation", operation_id, anew=True)
    if row is not None and row.lock_token == token:
        row.lock_token = row.lock_expires_at = None


@of(operations)
async def next_command_seq(session: Session, fleet_id: str) -> int:
    await session.statement()
    await session.hold(("fleet", fleet_id))
    row = session.find("fleet", fleet_id, anew=True)
    row.command_seq += 1
    await session.flush()
    return int(row.command_seq)


@of(operations)
async def commands_of(session: Session, operation_id: str, lock: bool = False) -> Sequence[Any]:
    await session.statement()
    rows = [row for row in session.scan("command") if row.operation_id == operation_id]
    if lock:
        for row in rows:
            await session.hold(("command", row.id))
        rows = [session.find("command", row.id, anew=True) for row in rows]
    return sorted(rows, key=lambda row: (row.fleet_id, row.seq))


@of(operations)
async def lock_commands(session: Session, fleet_id: str, command_ids: Sequence[str]) -> dict[str, Any]:
    await session.statement()
    mine = sorted(row.id for row in session.tables.table("command").values()
                  if row.fleet_id == fleet_id and row.id in command_ids)
    for command_id in mine:
        await session.hold(("command", command_id))
    return {command_id: session.find("command", command_id, anew=True) for command_id in mine}


@of(operations)
async def open_commands(session: Session, fleet_id: str) -> Sequence[tuple[Any, float]]:
    await session.statement()
    now = session.tables.now()
    rows = [row for row in session.scan("command") if row.fleet_id == fleet_id and row.status in OPEN_COMMANDS]
    return [(row, (row.deadline_at - now).total_seconds()) for row in sorted(rows, key=lambda row: row.seq)]


@of(operations)
async def fleets(session: Session) -> Sequence[tuple[str, str, bool, datetime | None]]:
    await session.statement()
    now, found = session.tables.now(), []
    for fleet in session.scan("fleet", anew=False):
        lease_row = session.find("agent_lease", fleet.id, anew=True)
        view = session.find("fleet_view", fleet.id, anew=True)
        found.append((fleet.id, fleet.datacenter_id, lease_row is not None and lease_row.expires_at > now,
                      view.observed_at if view else None))
    return found


@of(operations)
async def deployments(session: Session) -> Sequence[Any]:
    await session.statement()
    return session.scan("deployment")


@of(operations)
async def claims(session: Session, operation_id: str) -> Sequence[str]:
    await session.statement()
    return [row.resource for row in session.scan("operation_claim", anew=False) if row.operation_id == operation_id]


@of(operations)
async def newest_success(session: Session, kind: OperationKind, datacenter_id: str) -> Any:
    await session.statement()
    found = [row for row in session.scan("operation", anew=False) if row.kind is kind
             and row.datacenter_id == datacenter_id and row.state is OperationState.SUCCEEDED]
    return found[-1] if found else None


@of(operations)
async def postpone_commands(session: Session, operation_id: str, by: timedelta) -> None:
    for row in await commands_of(session, operation_id, lock=True):
        if row.status in OPEN_COMMANDS:
            row.deadline_at += by
    await session.flush()
