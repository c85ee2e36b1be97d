"""SQL of the evidence slice. Times are the database's."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import BigInteger, case, cast, delete, exists, func, or_, select, true, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.elements import ColumnElement

from control_plane.contracts.evidence import QualityMinute, Vote, VoteVerdict
from control_plane.contracts.operations import OperationKind, OperationState
from control_plane.evidence.models import EdgeVote, FailoverWatch, QualityRow
from control_plane.identity.models import Identity
from control_plane.operations.models import Operation, OperationClaim
from control_plane.routing.models import Edge
from control_plane.routing.repository import LISTED_FOR, MAX_LISTED
from control_plane.topology.models import Datacenter, Model

Rows = Sequence[Any]
NOW = func.clock_timestamp()
MOVES = (OperationKind.RESTORE, OperationKind.FAILOVER)
COUNTED = ("succeeded", "failed", "excluded", "ttft", "itl", "prompt_tokens", "cached_tokens", "completion_tokens")
PRUNE_BATCH = 10_000


async def store_votes(session: AsyncSession, edge_id: str, boot_id: str, votes: Sequence[Vote],
                      silent_after: timedelta) -> None:
    """Puts what an edge says now in the place of what it said before. A vote goes on, and keeps its beginning, if it is
    the same, of the same boot, and was last heard within `silent_after`."""
    told = {vote.datacenter_id: vote for vote in votes}
    await session.execute(delete(EdgeVote).where(EdgeVote.edge_id == edge_id, EdgeVote.datacenter_id.not_in(told)))
    if not told:
        return
    statement = insert(EdgeVote).values([{
        "edge_id": edge_id, "boot_id": boot_id, "datacenter_id": vote.datacenter_id, "verdict": vote.verdict,
        "held_s": vote.held_s, "evidence": vote.evidence, "since": NOW, "seen_at": NOW,
    } for _, vote in sorted(told.items())])
    new = statement.excluded
    goes_on = ((EdgeVote.boot_id == new.boot_id) & (EdgeVote.verdict == new.verdict)
               & (EdgeVote.seen_at > NOW - silent_after))
    await session.execute(statement.on_conflict_do_update(index_elements=["edge_id", "datacenter_id"], set_={
        "since": case((goes_on, EdgeVote.since), else_=new.since),
        **{name: new[name] for name in ("boot_id", "verdict", "held_s", "evidence", "seen_at")}}))


async def declared(session: AsyncSession) -> tuple[frozenset[str], frozenset[str]]:
    """The ids of the datacenters and of the models that there are."""
    places, models = [(await session.execute(select(table.id))).scalars().all() for table in (Datacenter, Model)]
    return frozenset(places), frozenset(models)


async def votes(session: AsyncSession) -> Rows:
    """Every vote of every edge that is still enrolled, and for how long it has been said and last heard."""
    return (await session.execute(select(
        EdgeVote.edge_id, EdgeVote.datacenter_id, EdgeVote.verdict, EdgeVote.evidence,
        func.extract("epoch", EdgeVote.since).label("since_s"),
    ).join(Identity, Identity.id == EdgeVote.edge_id).where(Identity.revoked_at.is_(None))
        .order_by(EdgeVote.datacenter_id, EdgeVote.edge_id))).all()


async def edges(session: AsyncSession) -> Rows:
    """The edges that were heard of within a day and are still enrolled."""
    return (await session.execute(select(
        Edge.id, Edge.region, func.extract("epoch", Edge.last_seen_at).label("seen_at_s"),
    ).join(Identity, Identity.id == Edge.id).where(Identity.revoked_at.is_(None), Edge.last_seen_at > NOW - LISTED_FOR)
        .order_by(Edge.id).limit(MAX_LISTED))).all()


async def last_moves(session: AsyncSession) -> dict[str, float]:
    """When each datacenter's last restore or failover that began ended, Unix seconds."""
    rows = (await session.execute(select(
        Operation.datacenter_id, func.extract("epoch", func.max(Operation.finished_at)),
    ).where(Operation.kind.in_(MOVES), Operation.finished_at.is_not(None), Operation.state != OperationState.REFUSED)
        .group_by(Operation.datacenter_id))).all()
    return {row[0]: float(row[1]) for row in rows if row[0] is not None}


async def under_way(session: AsyncSession) -> dict[str, str]:
    """The open operation that has each datacenter, in words."""
    rows = (await session.execute(select(OperationClaim.resource, Operation.kind, Operation.id).join(
        Operation, Operation.id == OperationClaim.operation_id).where(
        OperationClaim.resource.startswith("datacenter:")))).all()
    return {row.resource.removeprefix("datacenter:"): f"{row.kind.value} {row.id}" for row in rows}


async def open_failover(session: AsyncSession) -> str | None:
    """The datacenter that a failover takes away at this moment."""
    return (await session.execute(select(Operation.datacenter_id).where(
        Operation.kind == OperationKind.FAILOVER, Operation.finished_at.is_(None)).limit(1))).scalar_one_or_none()


async def now_s(session: AsyncSession) -> float:
    """The database's clock at this moment, Unix seconds."""
    return float((await session.execute(select(func.extract("epoch", NOW)))).scalar_one())


async def lease_watch(session: AsyncSession, token: str, lease_s: float) -> bool:
    """Whether there is something to count, now leased under `token`: votes for a loss, or findings to take back."""
    is_due = or_(func.jsonb_array_length(FailoverWatch.findings) > 0,
                 exists(select(EdgeVote.edge_id).where(EdgeVote.verdict == VoteVerdict.LOST)))
    free = or_(FailoverWatch.lock_expires_at.is_(None), FailoverWatch.lock_expires_at < NOW)
    due = select(FailoverWatch.id).where(is_due, free).with_for_update(skip_locked=True)
    return (await session.execute(update(FailoverWatch).where(FailoverWatch.id.in_(due.scalar_subquery())).values(
        lock_token=token, lock_expires_at=NOW + timedelta(seconds=lease_s),
    ).returning(FailoverWatch.id))).scalar_one_or_none() is not None


async def hold_watch(session: AsyncSession, token: str) -> bool:
    """Whether `token` still has the lease; the row is held until the transaction ends if so."""
    held = select(FailoverWatch.id).where(FailoverWatch.lock_token == token).with_for_update()
    return (await session.execute(held)).scalar_one_or_none() is not None


async def release_watch(session: AsyncSession, token: str) -> None:
    await session.execute(update(FailoverWatch).where(FailoverWatch.lock_token == token).values(
        lock_token=None, lock_expires_at=None))


async def note_findings(session: AsyncSession, findings: Sequence[Mapping[str, Any]]) -> None:
    await session.execute(update(FailoverWatch).values(findings=[dict(one) for one in findings]))


async def findings(session: AsyncSession) -> Sequence[Mapping[str, Any]]:
    """What the votes came to when they were counted last."""
    found: Sequence[Mapping[str, Any]] = (await session.execute(select(FailoverWatch.findings))).scalar_one()
    return found


async def store_minutes(session: AsyncSession, edge_id: str, boot_id: str, minutes: Sequence[QualityMinute]) -> None:
    """Puts an edge's minutes in the place of what it told of them before."""
    rows = {(one.minute, one.model_id, one.datacenter_id): one.model_dump() for one in minutes}
    statement = insert(QualityRow).values([
        {**row, "edge_id": edge_id, "boot_id": boot_id} for _, row in sorted(rows.items())])
    await session.execute(statement.on_conflict_do_update(
        index_elements=["minute", "model_id", "datacenter_id", "edge_id", "boot_id"],
        set_={name: statement.excluded[name] for name in COUNTED}))


async def outcomes(session: AsyncSession, since_s: float, model_ids: Sequence[str] | None = None) -> Rows:
    """Attempts by model, datacenter and whether they were served, of the minutes from `since_s` on."""
    return (await session.execute(select(
        QualityRow.model_id, QualityRow.datacenter_id, _whole(func.sum(QualityRow.succeeded)).label("succeeded"),
        _whole(func.sum(QualityRow.failed)).label("failed"),
    ).where(*_of(since_s, model_ids)).group_by(QualityRow.model_id, QualityRow.datacenter_id))).all()


async def histograms(session: AsyncSession, column: ColumnElement[Any], since_s: float,
                     model_ids: Sequence[str] | None = None) -> Rows:
    """A histogram's sums by model, datacenter and bucket (`at`, from 1), of the minutes from `since_s` on."""
    bucket = func.unnest(column).table_valued("value", with_ordinality="at").render_derived()
    return (await session.execute(select(
        QualityRow.model_id, QualityRow.datacenter_id, bucket.c.at, _whole(func.sum(bucket.c.value)).label("count"),
    ).select_from(QualityRow).join(bucket, true()).where(*_of(since_s, model_ids)).group_by(
        QualityRow.model_id, QualityRow.datacenter_id, bucket.c.at))).all()


async def prune(session: AsyncSession, before_s: float) -> int:
    """Deletes a batch of the minutes before `before_s`; how many."""
    old = select(QualityRow.minute, QualityRow.model_id, QualityRow.datacenter_id, QualityRow.edge_id,
                 QualityRow.boot_id).where(QualityRow.minute < before_s).limit(PRUNE_BATCH).subquery()
    gone = await session.execute(delete(QualityRow).where(
        QualityRow.minute == old.c.minute, QualityRow.model_id == old.c.model_id,
        QualityRow.datacenter_id == old.c.datacenter_id, QualityRow.edge_id == old.c.edge_id,
        QualityRow.boot_id == old.c.boot_id).returning(QualityRow.minute))
    return len(gone.all())


def _of(since_s: float, model_ids: Sequence[str] | None) -> list[ColumnElement[bool]]:
    of_models = [] if model_ids is None else [QualityRow.model_id.in_(model_ids)]
    return [QualityRow.minute >= int(since_s), *of_models]


def _whole(total: Any) -> ColumnElement[int]:
    """Postgres makes sums of whole numbers numeric."""
    return cast(total, BigInteger)
