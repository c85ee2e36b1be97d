"""One agent's sync: the lease first, then what it saw and did, then what it shall do.

A report and its answer are two short transactions; between them the poll waits without a database connection. Nothing
here reads a missing report as news: a lease that lapses moves no traffic.
"""

from functools import partial

from sqlalchemy import func
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.agents import repository
from control_plane.agents.lease import Claim, Lease, LeaseRefusal, decide
from control_plane.capacity import service as capacity
from control_plane.context import AppContext
from control_plane.contracts.agent_sync import (
    LEASE_TTL_S,
    AgentSyncAnswer,
    AgentSyncRequest,
    DeploymentPhase,
    ObservedDeployment,
)
from control_plane.db import after_commit, notify
from control_plane.errors import Conflict, Gone, NotFound, Refusal
from control_plane.identity.cache import Machine
from control_plane.operations import commands
from control_plane.routing import publisher
from control_plane.routing import repository as routing
from control_plane.routing.lineage import note_ahead, proof
from control_plane.topology import repository as topology
from control_plane.topology.models import Deployment, Fleet
from control_plane.topology.service import desired_state, fleet_channel
from control_plane.topology.states import observe_phase

MAX_WAIT_S = 10.0
BUSY_WAIT_S = 1.0
REFUSALS: dict[LeaseRefusal, tuple[type[Refusal], str]] = {
    LeaseRefusal.STALE_EPOCH: (Conflict, "the lease moved on; sync without an epoch to ask for it"),
    LeaseRefusal.SUPERSEDED: (Gone, "another boot holds this fleet's lease; stop acting"),
}


async def sync(context: AppContext, machine: Machine, request: AgentSyncRequest) -> AgentSyncAnswer:
    """Takes the report, then answers as soon as there is news, at the latest after the wait asked for.

    Raises:
        NotFound: the fleet is not declared.
        Conflict, Gone: the lease is not this agent's.
    """
    fleet_id, channel = machine.subject, fleet_channel(machine.subject)
    async with context.db.begin() as session:
        held = await _report(session, context, machine, request)
    began_s = context.clock.monotonic_s()
    while True:
        heard = {channel: context.wakeups.count(channel)}
        async with context.db.begin() as session:
            answer, is_news = await _answer(session, fleet_id, held, request)
        left_s = began_s + min(request.wait_s, answer.next_wait_s) - context.clock.monotonic_s()
        if is_news or left_s <= 0 or context.wakeups.is_closing:
            return answer
        await context.wakeups.poll(heard, left_s)


async def _report(session: AsyncSession, context: AppContext, machine: Machine, request: AgentSyncRequest) -> Lease:
    fleet = await topology.lock_fleet(session, machine.subject)
    if fleet is None:
        raise NotFound(f"fleet {machine.subject!r} is not declared; apply a topology with it", code="unknown_fleet")
    before = await repository.lease(session, fleet.id)
    held = decide(before, Claim(machine.id, request.boot_id, request.epoch))
    if isinstance(held, LeaseRefusal):
        refusal, message = REFUSALS[held]
        raise refusal(message, code=held.value)
    lineage, _ = await routing.head(session)
    _note_ahead(session, machine, fleet, held, request, lineage)
    await repository.store_lease(session, fleet.id, held, LEASE_TTL_S, request.release, repository.Fences(
        request.lineage, request.seen_epoch, request.seen_generation))
    if before is not None and before.epoch != held.epoch:
        await notify(session, fleet_channel(fleet.id))
    # What an agent of an older lineage saw, it saw of desired state that is not this database's.
    moved = request.lineage >= lineage and await _observe(session, fleet, held, request.deployments)
    await commands.acknowledge(session, fleet.id, request.acks)
    if moved:
        await publisher.publish(session, context.signing_key, f"fleet:{fleet.id}")
    await commands.report_arrived(session)
    return held


def _note_ahead(session: AsyncSession, machine: Machine, fleet: Fleet, held: Lease, request: AgentSyncRequest,
                lineage: int) -> None:
    seen = (request.lineage, request.seen_epoch, request.seen_generation)
    if request.lineage > lineage or (request.lineage == lineage and (
            request.seen_epoch > held.epoch or request.seen_generation > fleet.generation)):
        note = partial(note_ahead, "agent", machine.id, seen, (lineage, held.epoch, fleet.generation),
                       is_news=request.epoch is None)
        after_commit(session, note)


async def _observe(session: AsyncSession, fleet: Fleet, held: Lease, seen: list[ObservedDeployment]) -> bool:
    """Stores what the agent saw of this fleet's deployments; whether anything that edges route by moved."""
    reports = {report.deployment_id: report for report in seen}
    moved = False
    known = await topology.deployments_of(session, fleet.id)
    for deployment in known:
        report = reports.get(deployment.id)
        if report is not None:
            moved |= _record(deployment, report)
            await repository.store_ready_replicas(session, deployment.id, report.pools)
    await capacity.note(session, [reports[one.id] for one in known if one.id in reports])
    await repository.store_view(session, fleet.id, held.epoch, [report.model_dump(mode="json") for report in seen])
    await session.flush()
    return moved


def _record(deployment: Deployment, report: ObservedDeployment) -> bool:
    """Writes one report down. The first one counts as coming from `pending`."""
    before, facts = deployment.phase, report.facts.model_dump(mode="json")
    moved = deployment.facts != facts
    deployment.phase = observe_phase(before or DeploymentPhase.PENDING, report.phase)
    deployment.observed_generation = report.observed_generation
    deployment.inflight, deployment.queued, deployment.kv_usage = report.inflight, report.queued, report.kv_usage
    deployment.message = report.message
    deployment.facts = facts
    deployment.observed_at = func.clock_timestamp()
    return moved or deployment.phase is not before


async def _answer(session: AsyncSession, fleet_id: str, held: Lease,
                  request: AgentSyncRequest) -> tuple[AgentSyncAnswer, bool]:
    """What the agent shall know, and whether any of it is new to it."""
    current = await repository.lease(session, fleet_id)
    if current is None or (current.boot_id, current.epoch) != (held.boot_id, held.epoch):
        raise Gone("another boot took this fleet's lease; stop acting", code=LeaseRefusal.SUPERSEDED.value)
    fleet = await topology.fleet(session, fleet_id)
    assert fleet is not None  # noqa: S101 - a lease refers to it
    orders, are_new = await commands.hand_over(session, fleet_id, held.epoch)
    lineage, _ = await routing.head(session)
    knows = (request.lineage, request.seen_generation) == (lineage, fleet.generation)
    desired = None if knows else await desired_state(session, fleet)
    answer = AgentSyncAnswer(
        epoch=held.epoch, lease_ttl_s=LEASE_TTL_S, generation=fleet.generation, desired=desired, commands=orders,
        next_wait_s=BUSY_WAIT_S if orders or await _is_moving(session, fleet) else MAX_WAIT_S,
        lineage=lineage, recovery=await proof(session, lineage) if request.lineage < lineage else None)
    return answer, desired is not None or are_new


async def _is_moving(session: AsyncSession, fleet: Fleet) -> bool:
    """Whether reports are wanted soon: an operation looks at them, traffic is on its way, or a deployment is not where
    it shall be."""
    if await commands.is_moved(session, fleet.datacenter_id):
        return True
    if fleet.datacenter_id in await topology.moving_datacenters(session):
        return True
    return any(one.phase is not DeploymentPhase.READY or one.observed_generation != one.generation
               for one in await topology.deployments_of(session, fleet.id))
