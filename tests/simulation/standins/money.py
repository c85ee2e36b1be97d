"""Queries of usage, prices and books; and of the audit log, keys and tasks."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from control_plane.audit import repository as audit
from control_plane.audit.chain import Tip
from control_plane.billing import repository as billing
from control_plane.override import repository as override
from control_plane.reconcile import repository as reconcile
from control_plane.tenancy import repository as tenancy
from control_plane.usage import repository as usage
from tests.simulation.database import Session
from tests.simulation.standins.register import of


@of(audit)
async def lock_head_(session: Session) -> tuple[Tip, datetime]:
    await session.statement()
    await session.hold(("audit_head", True))
    row = session.find("audit_head", True, anew=True)
    return Tip(row.seq, row.hash), session.began


@of(audit)
async def append(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    await session.statement()
    for row in rows:
        await session.insert_missing("audit_event", row["seq"], **row)
    head_row = session.find("audit_head", True, anew=True)
    head_row.seq, head_row.hash = rows[-1]["seq"], rows[-1]["hash"]


@of(override)
async def living_keys(session: Session) -> Sequence[Any]:
    await session.statement()
    return ()


@of(tenancy)
async def revocations(session: Session, after: int, limit: int) -> Sequence[Any]:
    await session.statement()
    return ()


@of(tenancy)
async def changed_teams(session: Session, after: int, limit: int) -> Sequence[Any]:
    await session.statement()
    return ()


@of(tenancy)
async def teams_of_keys(session: Session, key_ids: Collection[str]) -> dict[str, str]:
    await session.statement()
    return {key_id: "team-1" for key_id in key_ids if key_id == "key-1"}


@of(billing)
async def prices(session: Session, versions: Collection[str]) -> Sequence[Any]:
    await session.statement()
    return [row for row in session.scan("price", anew=False) if row.version in versions]


@of(billing)
async def book(session: Session, rows: Sequence[Mapping[str, str]]) -> None:
    await session.statement()
    names = ("scope", "scope_id", "interval", "window_start")
    for row in sorted(rows, key=lambda row: tuple(row[name] for name in names)):
        key = tuple(str(row[name]) for name in names)
        await session.insert_missing("spend", key, spent_usd=0)
        spent = session.find("spend", key, anew=True)
        spent.spent_usd = Decimal(spent.spent_usd) + Decimal(row["spent_usd"])
        await session.flush()


@of(billing)
async def count_open_leases(session: Session) -> int:
    await session.statement()
    return 0


@of(billing)
async def close_all_leases(session: Session) -> None:
    await session.statement()


@of(reconcile)
async def put(session: Session, topic: str, key: str, payload: dict[str, Any], delay_s: float = 0) -> None:
    await session.statement()


@of(usage)
async def ensure_partition(session: Session, name: str, day: Any) -> None:
    await session.statement()


@of(usage)
async def insert_records(session: Session, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
    await session.statement()
    ordered = sorted(rows, key=lambda row: (row["day"], row["id"]))
    return {row["id"] for row in ordered if await session.insert_missing("usage_record", row["id"], **row)}


@of(usage)
async def insert_openings(session: Session, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
    await session.statement()
    ordered = sorted(rows, key=lambda row: row["id"])
    return {row["id"] for row in ordered if await session.insert_missing("usage_open", row["id"], **row)}


@of(usage)
async def stored_records(session: Session, days: Collection[Any], ids: Collection[UUID]) -> dict[UUID, bytes]:
    await session.statement()
    return _digests(session, "usage_record", ids)


@of(usage)
async def stored_openings(session: Session, ids: Collection[UUID]) -> dict[UUID, bytes]:
    await session.statement()
    return _digests(session, "usage_open", ids)


@of(usage)
async def settle_openings(session: Session, ids: Collection[UUID]) -> None:
    await session.statement()
    for request_id in sorted(ids):
        if session.find("usage_open", request_id) is not None:
            await session.remove("usage_open", request_id)


@of(usage)
async def quarantine(session: Session, rows: Sequence[Mapping[str, Any]]) -> int:
    await session.statement()
    for row in rows:
        session.tables.story.violate("no usage is set aside", f"{row['request_id']}: {row['reason']}")
    return len(rows)


def _digests(session: Session, table: str, ids: Collection[UUID]) -> dict[UUID, bytes]:
    rows = {request_id: session.find(table, request_id, anew=True) for request_id in sorted(ids)}
    return {request_id: bytes.fromhex(row.body_sha.removeprefix("\\x")) for request_id, row in rows.items() if row}
