"""What edges report of datacenters: taken in, and told to those who decide by it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts.edge_sync import EdgeSyncRequest
from control_plane.contracts.operator import Quality, VoteStatus
from control_plane.evidence import quality, repository
from control_plane.evidence.models import QualityRow
from control_plane.operations.facts import QualityCounts

KEPT = timedelta(days=2)
AHEAD_S = 300.0
"""How far an edge's clock may be ahead: minutes beyond that are not believed, nor those that are not kept any more."""

SILENT_AFTER = timedelta(seconds=15)
MINUTE_S, HALF_HOUR_S, DAY_S = 60.0, 1_800.0, 86_400.0


async def take(session: AsyncSession, edge_id: str, report: EdgeSyncRequest) -> None:
    """Stores an edge's votes and minutes of what is declared. Repeats change nothing."""
    if not report.votes and not report.minutes:
        await repository.store_votes(session, edge_id, report.boot_id, (), SILENT_AFTER)
        return
    places, models = await repository.declared(session)
    votes = [one for one in report.votes if one.datacenter_id in places]
    await repository.store_votes(session, edge_id, report.boot_id, votes, SILENT_AFTER)
    if not report.minutes:
        return
    now_s = await repository.now_s(session)
    kept = [one for one in report.minutes
            if now_s - KEPT.total_seconds() <= one.minute <= now_s + AHEAD_S and one.minute % int(MINUTE_S) == 0
            and one.datacenter_id in places and one.model_id in models]
    if kept:
        await repository.store_minutes(session, edge_id, report.boot_id, kept)


async def quality_since(session: AsyncSession, model_ids: Sequence[str] | None,
                        since: datetime) -> dict[str, QualityCounts]:
    """What edges counted by datacenter, of these models or (null) of all, from the minute of `since` on. The sums only
    grow, until that minute is two days old."""
    since_s = since.timestamp() // MINUTE_S * MINUTE_S
    counts = await _counts(session, since_s, model_ids)
    places: dict[str, list[QualityCounts]] = {}
    for (_, datacenter_id), one in counts.items():
        places.setdefault(datacenter_id, []).append(one)
    return {datacenter_id: quality.summed(several) for datacenter_id, several in places.items()}


async def quality_by_region(session: AsyncSession,
                            regions: Mapping[str, str]) -> dict[tuple[str, str | None], Quality]:
    """Each model's figures by region, and everywhere (region null); `regions` are the datacenters' own. Who had too few
    requests has nulls; who had none is not there."""
    now_s = await repository.now_s(session)
    shortest = quality.by_region(await _counts(session, now_s - 5 * MINUTE_S, None), regions)
    half_hour, day = [quality.by_region(quality.counts_by_place(
        await repository.outcomes(session, now_s - span_s)), regions) for span_s in (HALF_HOUR_S, DAY_S)]
    none = QualityCounts()
    return {key: quality.figures(shortest.get(key, none), half_hour.get(key, none), one) for key, one in day.items()}


async def votes(session: AsyncSession) -> list[VoteStatus]:
    """What live edges say against datacenters, with what keeps it from being a failover."""
    now_s = await repository.now_s(session)
    live = {edge.id for edge in await repository.edges(session)
            if now_s - float(edge.seen_at_s) <= SILENT_AFTER.total_seconds()}
    blocked = {one["datacenter_id"]: one["blocked"] for one in await repository.findings(session)}
    said: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for vote in await repository.votes(session):
        if vote.edge_id in live:
            said.setdefault((vote.datacenter_id, vote.verdict.value), []).append(
                (now_s - float(vote.since_s), vote.evidence))
    return [_status(datacenter_id, verdict, several, len(live), blocked.get(datacenter_id, ""))
            for (datacenter_id, verdict), several in sorted(said.items())]


async def prune(session: AsyncSession) -> bool:
    """Forgets a batch of old minutes; whether there may be more."""
    now_s = await repository.now_s(session)
    return await repository.prune(session, now_s - KEPT.total_seconds()) == repository.PRUNE_BATCH


def _status(datacenter_id: str, verdict: str, said: Sequence[tuple[float, str]], live: int, blocked: str) -> VoteStatus:
    held_s, evidence = max(said)
    why = f"; no failover: {blocked}" if blocked and verdict == "lost" else ""
    return VoteStatus(datacenter=datacenter_id, verdict=verdict, edges=len(said), of=live, held_s=max(held_s, 0.0),
                      evidence=evidence + why)


async def _counts(session: AsyncSession, since_s: float,
                  model_ids: Sequence[str] | None) -> dict[quality.Place, QualityCounts]:
    columns = QualityRow.__table__.columns
    return quality.counts_by_place(
        await repository.outcomes(session, since_s, model_ids),
        await repository.histograms(session, columns.ttft, since_s, model_ids),
        await repository.histograms(session, columns.itl, since_s, model_ids))
