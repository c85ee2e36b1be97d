"""One edge's sync: what it reports is stored, what is new to it is answered; the poll waits without a connection."""

from datetime import timedelta
from functools import partial

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import metrics
from control_plane.context import AppContext
from control_plane.contracts.edge_sync import EdgeSyncAnswer, EdgeSyncRequest
from control_plane.contracts.recovery import FIRST_LINEAGE
from control_plane.contracts.snapshot import SignedSnapshot
from control_plane.db import after_commit
from control_plane.evidence import service as evidence
from control_plane.identity.cache import Machine
from control_plane.operations import commands
from control_plane.override import service as overrides
from control_plane.routing import publisher, repository
from control_plane.routing.lineage import note_ahead
from control_plane.tenancy import changes
from control_plane.tenancy.service import REVOCATIONS_CHANNEL, end_forgotten, revocations_after
from control_plane.topology import repository as topology

MAX_WAIT_S = 4.0
"""Revocations reach an edge within 5 s even when no hint of them arrives, so no poll waits longer than this."""

BUSY_WAIT_S = 1.0
MAX_REVOCATIONS = MAX_CHANGES = 1_000
MAX_NOTED = 50
LIVE_FOR = timedelta(seconds=15)
"""An edge that was not heard from for longer takes no share of a limit; it polls every few seconds."""

CHANNELS = (publisher.CHANNEL, REVOCATIONS_CHANNEL, changes.CHANNEL)


async def sync(context: AppContext, machine: Machine, request: EdgeSyncRequest) -> EdgeSyncAnswer:
    """Takes the report, then answers as soon as there is news, at the latest after the wait asked for."""
    async with context.db.begin() as session:
        taken = await _report(session, machine, request)
    began_s = context.clock.monotonic_s()
    while True:
        heard = {channel: context.wakeups.count(channel) for channel in CHANNELS}
        async with context.db.begin() as session:
            answer, is_news = await _answer(session, request)
        left_s = began_s + min(request.wait_s, answer.next_wait_s) - context.clock.monotonic_s()
        if is_news or left_s <= 0 or context.wakeups.is_closing:
            return answer.model_copy(update={"overrides_taken": taken})
        await context.wakeups.poll(heard, left_s)


async def _report(session: AsyncSession, machine: Machine, request: EdgeSyncRequest) -> list[str]:
    """Stores the report. The ids of the overrides that are on record now."""
    nack = request.nack
    await _note_news(session, machine, request)
    await repository.store_edge(session, {
        "id": machine.id, "region": machine.subject, "boot_id": request.boot_id, "release": request.release,
        "acked_lineage": request.acked_lineage, "acked_version": request.acked_version,
        "nack_lineage": nack.lineage if nack else None, "nack_version": nack.version if nack else None,
        "nack_error": nack.error if nack else None, "open_requests": request.open_requests,
        "open_streams": request.open_streams, "sessions": request.sessions,
        "url": request.override_url, "overrides": overrides.in_force(request.overrides)})
    await evidence.take(session, machine.id, request)
    await commands.report_arrived(session)
    if request.ended_keys and FIRST_LINEAGE < request.acked_lineage == (await repository.head(session))[0]:
        await end_forgotten(session, request.ended_keys, machine.id)
    return await overrides.import_reports(session, machine.id, request.overrides)


async def _note_news(session: AsyncSession, machine: Machine, request: EdgeSyncRequest) -> None:
    """Counts what this report tells for the first time: snapshots put to use, and one refused."""
    before = await repository.edge(session, machine.id)
    head, acked = await repository.head(session), (request.acked_lineage, request.acked_version)
    if acked > head:
        is_news = before is None or (before.acked_lineage, before.acked_version) <= head
        after_commit(session, partial(note_ahead, "edge", machine.id, acked, head, is_news))
    if request.nack is not None and (before is None or (before.nack_lineage, before.nack_version) != (
            request.nack.lineage, request.nack.version)):
        after_commit(session, metrics.SNAPSHOTS_REFUSED.labels(machine.subject).inc)
    if before is None or before.boot_id != request.boot_id or before.acked_lineage != request.acked_lineage:
        return
    if request.acked_version > before.acked_version:
        for age_s in await repository.ages_s(
                session, request.acked_lineage, before.acked_version, request.acked_version, MAX_NOTED):
            after_commit(session, partial(metrics.PROPAGATION_S.observe, age_s))


async def _answer(session: AsyncSession, request: EdgeSyncRequest) -> tuple[EdgeSyncAnswer, bool]:
    """What the edge shall know, and whether any of it is new to it. A snapshot that it refused is sent again when the
    wait is over, not at once: it may have been mended meanwhile, and must not be asked in a loop."""
    newest = await repository.head(session)
    row = None
    if newest != (request.acked_lineage, request.acked_version):
        row = await repository.snapshot(session, *newest)
    revocations = await revocations_after(session, request.revocations_after, MAX_REVOCATIONS)
    changed = []
    if request.changes_after is not None:
        changed = await changes.changes_after(session, request.changes_after, MAX_CHANGES)
    refused = request.nack is not None and (request.nack.lineage, request.nack.version) == newest
    answer = EdgeSyncAnswer(
        snapshot=row and SignedSnapshot(key_id=row.key_id, signature=row.signature, body=row.body),
        revocations=revocations, changes=changed,
        next_wait_s=BUSY_WAIT_S if await _is_moving(session) else MAX_WAIT_S,
        live_edges=max(1, await repository.live_edges(session, LIVE_FOR)))
    return answer, bool(revocations or changed) or (row is not None and not refused)


async def _is_moving(session: AsyncSession) -> bool:
    """Whether reports are wanted soon: traffic is on its way, or an operation looks at them."""
    return bool(await topology.moving_datacenters(session)) or await commands.any_open(session)
