"""Queries of edges' votes and minutes of quality."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

from control_plane.contracts.evidence import QualityMinute, Vote, VoteVerdict
from control_plane.contracts.operations import OperationKind, OperationState
from control_plane.evidence import repository as evidence
from control_plane.operations.machine import OPEN_OPERATIONS
from tests.simulation.database import Session
from tests.simulation.standins.register import of


@of(evidence)
async def store_votes(session: Session, edge_id: str, boot_id: str, votes: Sequence[Vote],
                      silent_after: timedelta) -> None:
    await session.statement()
    now, told = session.tables.now(), {vote.datacenter_id: vote for vote in votes}
    for row in session.scan("edge_vote"):
        if row.edge_id == edge_id and row.datacenter_id not in told:
            await session.remove("edge_vote", (edge_id, row.datacenter_id))
    for place, vote in sorted(told.items()):
        await session.hold(("edge_vote", (edge_id, place)))
        before = session.find("edge_vote", (edge_id, place), anew=True)
        goes_on = before is not None and (before.boot_id, before.verdict) == (
            boot_id, vote.verdict) and before.seen_at > now - silent_after
        await session.put(
            "edge_vote", (edge_id, place), edge_id=edge_id, datacenter_id=place, verdict=vote.verdict, boot_id=boot_id,
            held_s=vote.held_s, evidence=vote.evidence, since=before.since if goes_on else now, seen_at=now)


@of(evidence)
async def votes(session: Session) -> Sequence[Any]:
    await session.statement()
    return sorted((SimpleNamespace(
        edge_id=row.edge_id, datacenter_id=row.datacenter_id, verdict=row.verdict, evidence=row.evidence,
        since_s=row.since.timestamp()) for row in session.scan("edge_vote")),
        key=lambda row: (row.datacenter_id, row.edge_id))


@of(evidence)
async def edges(session: Session) -> Sequence[Any]:
    await session.statement()
    return [SimpleNamespace(id=row.id, region=row.region, seen_at_s=row.last_seen_at.timestamp())
            for row in session.scan("edge")]


@of(evidence)
async def last_moves(session: Session) -> dict[str, float]:
    await session.statement()
    found: dict[str, float] = {}
    for row in session.scan("operation"):
        if (row.kind in (OperationKind.RESTORE, OperationKind.FAILOVER) and row.finished_at is not None
                and row.state is not OperationState.REFUSED):
            found[row.datacenter_id] = max(found.get(row.datacenter_id, 0.0), row.finished_at.timestamp())
    return found


@of(evidence)
async def under_way(session: Session) -> dict[str, str]:
    await session.statement()
    operations = {row.id: row for row in session.scan("operation")}
    return {row.resource.removeprefix("datacenter:"): f"{operations[row.operation_id].kind.value} {row.operation_id}"
            for row in session.scan("operation_claim") if row.resource.startswith("datacenter:")}


@of(evidence)
async def open_failover(session: Session) -> str | None:
    await session.statement()
    return next((row.datacenter_id for row in session.scan("operation")
                 if row.kind is OperationKind.FAILOVER and row.state in OPEN_OPERATIONS), None)


@of(evidence)
async def now_s(session: Session) -> float:
    await session.statement()
    return session.tables.now().timestamp()


@of(evidence)
async def lease_watch(session: Session, token: str, lease_s: float) -> bool:
    await session.statement()
    row, now = session.find("failover_watch", True, anew=True), session.tables.now()
    is_due = bool(row.findings) or any(
        vote.verdict is VoteVerdict.LOST for vote in session.tables.table("edge_vote").values())
    is_held = ("failover_watch", True) in session.tables.holders
    if not is_due or is_held or (row.lock_expires_at is not None and row.lock_expires_at >= now):
        return False
    row.lock_token, row.lock_expires_at = token, now + timedelta(seconds=lease_s)
    await session.flush()
    return True


@of(evidence)
async def hold_watch(session: Session, token: str) -> bool:
    await session.statement()
    await session.hold(("failover_watch", True))
    return bool(session.find("failover_watch", True, anew=True).lock_token == token)


@of(evidence)
async def release_watch(session: Session, token: str) -> None:
    await session.statement()
    await session.hold(("failover_watch", True))
    row = session.find("failover_watch", True, anew=True)
    if row.lock_token == token:
        row.lock_token = row.lock_expires_at = None


@of(evidence)
async def note_findings(session: Session, findings: Sequence[Mapping[str, Any]]) -> None:
    await session.statement()
    session.find("failover_watch", True, anew=True).findings = [dict(one) for one in findings]


@of(evidence)
async def store_minutes(session: Session, edge_id: str, boot_id: str, minutes: Sequence[QualityMinute]) -> None:
    await session.statement()
    for one in minutes:
        await session.put("quality_minute", (one.minute, one.model_id, one.datacenter_id, edge_id, boot_id),
                          **one.model_dump())


@of(evidence)
async def outcomes(session: Session, since_s: float, model_ids: Sequence[str] | None = None) -> Sequence[Any]:
    await session.statement()
    sums: dict[tuple[str, str], list[int]] = {}
    for row in session.scan("quality_minute"):
        if row.minute >= int(since_s) and (model_ids is None or row.model_id in model_ids):
            total = sums.setdefault((row.model_id, row.datacenter_id), [0, 0])
            total[0] += row.succeeded
            total[1] += row.failed
    return [SimpleNamespace(model_id=model, datacenter_id=place, succeeded=good, failed=bad)
            for (model, place), (good, bad) in sums.items()]


class Bucket(NamedTuple):
    """A row of its answer, of which there are many."""

    model_id: str
    datacenter_id: str
    at: int
    count: int  # type: ignore[assignment]


@of(evidence)
async def histograms(session: Session, column: Any, since_s: float,
                     model_ids: Sequence[str] | None = None) -> Sequence[Any]:
    await session.statement()
    sums: dict[tuple[str, str, int], int] = {}
    for row in session.scan("quality_minute"):
        if row.minute >= int(since_s) and (model_ids is None or row.model_id in model_ids):
            for at, count in enumerate(getattr(row, column.name), start=1):
                key = (row.model_id, row.datacenter_id, at)
                sums[key] = sums.get(key, 0) + count
    return [Bucket(*key, count) for key, count in sums.items()]


@of(evidence)
async def declared(session: Session) -> tuple[frozenset[str], frozenset[str]]:
    await session.statement()
    places = frozenset(row.id for row in session.scan("datacenter", anew=False))
    await session.statement()
    return places, frozenset(row.id for row in session.scan("model", anew=False))
