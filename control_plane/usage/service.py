"""Takes batches from edges, exactly once, and answers what was used."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import metrics, paging
from control_plane.audit import service as audit
from control_plane.billing import service as billing
from control_plane.billing.booking import Charge
from control_plane.contracts import ids
from control_plane.contracts.billing import RecountView
from control_plane.contracts.clock import Clock
from control_plane.contracts.operator import GenerationView, Page, UsageGroup, UsageSummary
from control_plane.contracts.operator import UsageRow as UsageSums
from control_plane.contracts.pricing import usd_text
from control_plane.contracts.usage import UsageAnswer, UsageBatch, UsageOpen, UsageRecord, Verdict
from control_plane.db import Database, after_commit
from control_plane.errors import Refusal
from control_plane.reconcile import repository as outbox
from control_plane.tenancy import service as tenancy
from control_plane.tenancy.models import Team
from control_plane.usage import intake, repository, rows
from control_plane.usage.intake import Facts, Frame, Reason
from control_plane.usage.models import UsageRow
from control_plane.usage.partitions import Partitions
from control_plane.usage.verdicts import Ledger
from control_plane.usage.window import Window

ROLLUP_TOPIC = "usage.rollup"
ROLLUP_DELAY_S = 30.0
DAY_S = 86_400
MAX_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Intake:
    """What takes batches in: it makes the partitions they need and remembers which exist."""

    db: Database
    clock: Clock
    retention_days: int
    partitions: Partitions

    async def receive(self, edge_id: str, batch: UsageBatch) -> UsageAnswer:
        """Stores `batch`, signed by `edge_id`, and says what became of each frame. Safe to repeat."""
        if not batch.frames:
            return UsageAnswer([])
        now_s = self.clock.time_s()
        oldest_s, newest_s = now_s - self.retention_days * DAY_S, now_s + intake.MAX_AHEAD_S
        await self.partitions.ensure(self.db, intake.days_of(batch.frames, oldest_s, newest_s))

        async def work(session: AsyncSession) -> UsageAnswer:
            facts = await _facts(session, batch.frames, oldest_s, newest_s)
            return UsageAnswer(await _store(session, edge_id, batch, facts))

        answer = await self.db.run(work)
        _note_lag(batch, answer, self.clock.time_s())
        return answer


async def summary(session: AsyncSession, window: Window, groups: Sequence[UsageGroup],
                  team_id: str | None = None) -> UsageSummary:
    """Exact sums of the window, from the records themselves; of the dearest `MAX_ROWS` groups."""
    groups = list(dict.fromkeys(groups))
    found = await repository.sums(session, window, groups, team_id, MAX_ROWS + 1)
    (total,) = await repository.sums(session, window, [], team_id, 1)
    return UsageSummary(
        start=window.start, end=window.end, rows=[UsageSums(**row._mapping) for row in found[:MAX_ROWS]],
        total=UsageSums(**total._mapping), truncated=len(found) > MAX_ROWS)


async def generations(session: AsyncSession, asked: paging.Asked, team_id: str | None = None) -> Page[GenerationView]:
    """A page of records, the newest first.

    Raises:
        Refusal: the cursor is none of ours.
    """
    found = await repository.newest(session, asked.limit + 1, _key_of(asked.cursor), team_id)
    return paging.page([_view(row) for row in found], asked, key=lambda generation: generation.request_id)


async def recount(session: AsyncSession, team: Team, actor: str) -> RecountView:
    """Sums a team's spend from its records again, for it and for its keys. Nobody else books meanwhile."""
    await billing.hold_books(session)
    before = await billing.team_credits(session, team.id)
    await billing.rebook(session, team.id, [
        Charge(team.id, row.key_id, row.day, row.cost_usd) for row in await repository.daily_costs(session, team.id)])
    after = await billing.team_credits(session, team.id)
    counted = RecountView(team_id=team.id, spent_usd=after.total_usage_usd,
                          corrected_usd=after.total_usage_usd - before.total_usage_usd)
    audit.record(session, actor=actor, action="team.recount", target=f"team:{team.id}",
                 before={"spent_usd": usd_text(before.total_usage_usd)},
                 after={"spent_usd": usd_text(after.total_usage_usd)})
    return counted


async def _facts(session: AsyncSession, frames: Sequence[Frame], oldest_s: float, newest_s: float) -> Facts:
    prices = await billing.prices_of(session, _texts({frame.price_version for frame in frames}))
    teams = await tenancy.teams_of_keys(session, _texts({frame.key_id for frame in frames}))
    return Facts(prices, teams, oldest_s, newest_s)


async def _store(session: AsyncSession, edge_id: str, batch: UsageBatch, facts: Facts) -> list[Verdict]:
    reasons: list[Reason | None] = [intake.reason_against(frame, facts) for frame in batch.frames]
    sound = [frame for frame, reason in zip(batch.frames, reasons, strict=True) if reason is None]
    records = [frame for frame in sound if isinstance(frame, UsageRecord)]
    openings = [frame for frame in sound if isinstance(frame, UsageOpen)]
    ledger = await _store_records(session, edge_id, records, openings, facts)
    await _store_openings(session, edge_id, batch.boot_id, openings, ledger)
    verdicts = []
    for index, frame in enumerate(batch.frames):
        verdict = Verdict.CONFLICT if reasons[index] else ledger.verdict(frame)
        if verdict is Verdict.CONFLICT and reasons[index] is None:
            reasons[index] = Reason.CONTRADICTION
        verdicts.append(verdict)
    await _set_aside(session, edge_id, batch.frames, reasons)
    await billing.book(session, rows.charges(records, ledger.records, ledger.new_records, facts))
    after_commit(session, lambda: _count(verdicts))
    return verdicts


async def _store_records(session: AsyncSession, edge_id: str, records: Sequence[UsageRecord],
                         openings: Sequence[UsageOpen], facts: Facts) -> Ledger:
    ledger = Ledger()
    if records:
        ledger.new_records = await repository.insert_records(
            session, [rows.record(edge_id, record, facts) for record in records])
    wanted = {record.request_id for record in records} | {opening.request_id for opening in openings}
    if wanted:
        ledger.records = await repository.stored_records(session, {ids.uuid7_day(value) for value in wanted}, wanted)
    fresh = [record for record in records if record.request_id in ledger.new_records]
    if fresh:
        await repository.settle_openings(session, {record.request_id for record in fresh})
    for hour in sorted(intake.hours_of(fresh)):
        await outbox.put(session, ROLLUP_TOPIC, hour.isoformat(), {"hour": hour.isoformat()}, ROLLUP_DELAY_S)
    return ledger


async def _store_openings(session: AsyncSession, edge_id: str, boot_id: str, openings: Sequence[UsageOpen],
                          ledger: Ledger) -> None:
    unsettled = [frame for frame in openings if frame.request_id not in ledger.records]
    if unsettled:
        ledger.new_openings = await repository.insert_openings(
            session, [rows.opening(edge_id, boot_id, frame) for frame in unsettled])
        ledger.openings = await repository.stored_openings(session, {frame.request_id for frame in unsettled})


async def _set_aside(session: AsyncSession, edge_id: str, frames: Sequence[Frame],
                     reasons: Sequence[Reason | None]) -> None:
    aside = [rows.quarantined(edge_id, frame, reason)
             for frame, reason in zip(frames, reasons, strict=True) if reason is not None]
    if aside and await repository.quarantine(session, aside):
        named = [reason.value for reason in reasons if reason is not None]
        after_commit(session, lambda: _alarm(named))


def _note_lag(batch: UsageBatch, answer: UsageAnswer, now_s: float) -> None:
    """Notes how long the record that waited longest took to get here."""
    stored = [frame for frame, verdict in zip(batch.frames, answer.verdicts, strict=True)
              if isinstance(frame, UsageRecord) and verdict is Verdict.STORED]
    if stored:
        ended_s = min(record.opened_at_s + record.duration_ms / 1_000 for record in stored)
        metrics.USAGE_LAG_S.observe(max(now_s - ended_s, 0.0))


def _count(verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        metrics.USAGE_FRAMES.labels(verdict.value).inc()


def _alarm(reasons: Sequence[str]) -> None:
    for reason in reasons:
        metrics.USAGE_QUARANTINED.labels(reason).inc()


def _texts(values: set[str]) -> set[str]:
    """Without what Postgres cannot even compare; nothing is stored under such a name."""
    return {value for value in values if "\0" not in value}


def _key_of(cursor: str | None) -> tuple[date, UUID] | None:
    if cursor is None:
        return None
    try:
        value = UUID(cursor)
        return ids.uuid7_day(value), value
    except (ValueError, OverflowError, OSError) as error:
        raise Refusal("the cursor is none of ours", code="bad_cursor") from error


def _view(row: UsageRow) -> GenerationView:
    return GenerationView(
        request_id=str(row.id), team_id=row.team_id, key_id=row.key_id, model=row.model_id,
        datacenter=row.datacenter_id, outcome=row.outcome, streamed=row.streamed, http_status=row.http_status,
        prompt_tokens=row.prompt_tokens, cached_tokens=row.cached_tokens, completion_tokens=row.completion_tokens,
        cost_usd=row.cost_usd, price_version=row.price_version, attempts=len(row.attempts), created_at=row.opened_at,
        duration_ms=row.duration_ms, ttft_ms=row.ttft_ms)
