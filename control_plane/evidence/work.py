"""Counting votes as leased work: every replica would, one at a time does, and a quorum makes one failover."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import ClassVar

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.context import AppContext
from control_plane.contracts.evidence import VoteVerdict
from control_plane.contracts.operations import FailoverMode, OperationKind, OperationRequest
from control_plane.contracts.snapshot import TrafficState
from control_plane.errors import Conflict
from control_plane.evidence import quorum, repository
from control_plane.evidence.quorum import Finding, Place, Rules, Voter
from control_plane.operations import service as operations
from control_plane.operations.freezing import why_still
from control_plane.settings import Settings
from control_plane.topology import repository as topology

LEASE_S = 5.0
ITEM = "votes"
ACTOR = "meridian:evidence"
CHANNEL = "evidence"
MAX_REASON = 500
SERVES = frozenset({TrafficState.ACTIVE, TrafficState.WARMING, TrafficState.DRAINING})

log = structlog.get_logger()


def rules_of(settings: Settings) -> Rules:
    """How long votes must hold, and how long a datacenter rests, as it is set."""
    return Rules(after_s=settings.failover_after_s, again_after_s=settings.failover_again_after_s)


class FailoverWork:
    """One item: the next count. What it finds is kept for operators to see."""

    name: ClassVar[str] = "failover"
    channel: ClassVar[str] = CHANNEL

    def __init__(self, context: AppContext) -> None:
        self._context, self._rules = context, rules_of(context.settings)

    async def lease(self, token: str) -> Sequence[str]:
        async with self._context.db.begin() as session:
            return [ITEM] if await repository.lease_watch(session, token, LEASE_S) else []

    async def advance(self, item: str, token: str) -> bool:
        async def count(session: AsyncSession) -> None:
            if await repository.hold_watch(session, token):
                await count_votes(session, self._rules)

        await self._context.db.run(count)
        return False

    async def release(self, item: str, token: str) -> None:
        async with self._context.db.begin() as session:
            await repository.release_watch(session, token)


async def count_votes(session: AsyncSession, rules: Rules) -> None:
    """Counts, begins a failover where a quorum says so and nothing speaks against it, and notes what was found."""
    places = await topology.lock_datacenters(session)  # so that what is read of operations is still so when one begins
    moved, under_way = await repository.last_moves(session), await repository.under_way(session)
    told = [Place(one.id, one.traffic_state in SERVES, moved.get(one.id), under_way.get(one.id, ""))
            for one in places.values()]
    now_s = await repository.now_s(session)
    findings = quorum.decide(await _voters(session), told, now_s, rules, await _standstill(session))
    noted = []
    for finding in findings:
        blocked = finding.blocked
        if not blocked:
            place, said = places[finding.datacenter_id], await _evidence(session, finding.datacenter_id)
            blocked = await _fail_over(session, finding, said, f"{place.id}:{place.generation}")
        noted.append(replace(finding, blocked=blocked))
    await repository.note_findings(session, [asdict(one) for one in noted])


async def _voters(session: AsyncSession) -> list[Voter]:
    lost: dict[str, dict[str, float]] = {}
    for vote in await repository.votes(session):
        if vote.verdict is VoteVerdict.LOST:
            lost.setdefault(vote.edge_id, {})[vote.datacenter_id] = float(vote.since_s)
    return [Voter(edge.id, edge.region, float(edge.seen_at_s), lost.get(edge.id, {}))
            for edge in await repository.edges(session)]


async def _standstill(session: AsyncSession) -> str:
    if frozen := await why_still(session):
        return frozen
    leaving = await repository.open_failover(session)
    return f"one failover at a time: {leaving}'s is under way" if leaving else ""


async def _evidence(session: AsyncSession, datacenter_id: str) -> str:
    """What most edges say in their own words."""
    said = [vote.evidence for vote in await repository.votes(session)
            if vote.datacenter_id == datacenter_id and vote.verdict is VoteVerdict.LOST and vote.evidence]
    return max(said, key=said.count, default="no evidence was told")


async def _fail_over(session: AsyncSession, finding: Finding, evidence: str, episode: str) -> str:
    """Begins the failover. What refused it, in words; empty once it is under way. A safety rule is asked first, so that
    a refusal that lasts does not fill the records."""
    regions = "region" if finding.regions == 1 else "regions"
    reason = (f"lost to {finding.edges} of {finding.of} edges in {finding.regions} {regions} for {finding.held_s:.0f} s"
              f": {evidence}")
    asked = OperationRequest(
        kind=OperationKind.FAILOVER, datacenter=finding.datacenter_id, mode=FailoverMode.HARD,
        reason="".join(one if one.isprintable() else " " for one in reason)[:MAX_REASON])
    try:
        planned = await operations.create(session, asked.model_copy(update={"dry_run": True}), ACTOR, None, True)
        if planned.plan.refusal is not None:
            return planned.plan.refusal.message
        begun = await operations.create(session, asked, ACTOR, episode, True)
    except Conflict as refused:
        return str(refused)
    if begun.refusal is not None:
        return str(begun.refusal)
    if begun.is_new and begun.operation is not None:
        log.warning("automatic_failover", datacenter=finding.datacenter_id, operation=begun.operation.id,
                    edges=finding.edges, of=finding.of, held_s=round(finding.held_s, 1))
    return ""
