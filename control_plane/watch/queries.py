"""SQL of the figures. Each query reads a small table, or an index of a large one: they run every few seconds."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.elements import ColumnElement

from control_plane.agents.models import AgentLease
from control_plane.capacity.models import CapacityMove, CapacityPlanner
from control_plane.evidence.models import EdgeVote, FailoverWatch, QualityRow
from control_plane.identity.models import Identity
from control_plane.operations.machine import CommandStatus
from control_plane.operations.models import Command, Operation, OperationStep
from control_plane.reconcile.models import OutboxRow
from control_plane.routing.models import Edge, RoutingHead, RoutingSnapshot
from control_plane.routing.repository import LISTED_FOR, MAX_LISTED
from control_plane.topology.models import Datacenter, Deployment, Fleet, Model, Pool
from control_plane.usage.models import UsageOpening, UsageQuarantine

NOW = func.clock_timestamp()
VOTES_COUNT_FOR, MOVES_COUNT_FOR = timedelta(seconds=15), timedelta(hours=1)
ATTEMPTS_COUNT_FOR_S = 300
OPEN_COMMANDS = (CommandStatus.ISSUED, CommandStatus.ACCEPTED)

Rows = Sequence[Any]


async def datacenters(session: AsyncSession) -> Rows:
    return (await session.execute(select(
        Datacenter.id, Datacenter.region_id, Datacenter.traffic_state, Datacenter.weight, Datacenter.ramp_percent,
        _age_s(Datacenter.changed_at)).order_by(Datacenter.id))).all()


async def models(session: AsyncSession) -> Rows:
    return (await session.execute(select(Model.id, Model.min_datacenters).order_by(Model.id))).all()


async def deployments(session: AsyncSession) -> Rows:
    """Deployments with the datacenter that they are in, and the replicas that they shall have."""
    wanted = select(func.coalesce(func.sum(Pool.replicas), 0)).where(
        Pool.deployment_id == Deployment.id).scalar_subquery()
    return (await session.execute(select(
        Deployment.id, Deployment.model_id, Fleet.datacenter_id, Deployment.phase, Deployment.generation,
        Deployment.observed_generation, Deployment.inflight, Deployment.queued, Deployment.kv_usage,
        Deployment.share_permille, wanted.label("replicas"),
    ).join(Fleet, Fleet.id == Deployment.fleet_id).order_by(Deployment.id))).all()


async def pools(session: AsyncSession) -> Rows:
    return (await session.execute(select(
        Pool.deployment_id, Deployment.model_id, Fleet.datacenter_id, Pool.role, Pool.replicas, Pool.ready_replicas,
    ).join(Deployment, Deployment.id == Pool.deployment_id).join(Fleet, Fleet.id == Deployment.fleet_id)
        .order_by(Pool.deployment_id, Pool.role))).all()


async def leases(session: AsyncSession) -> Rows:
    """Every fleet and its lease; the lease's columns are null for one that never had an agent."""
    return (await session.execute(select(
        Fleet.id, Fleet.datacenter_id, AgentLease.epoch, (AgentLease.expires_at > NOW).label("live"),
        _age_s(AgentLease.renewed_at),
    ).outerjoin(AgentLease, AgentLease.fleet_id == Fleet.id).order_by(Fleet.id))).all()


async def edges(session: AsyncSession) -> Rows:
    """The edges that were heard from within a day and are still enrolled."""
    return (await session.execute(select(
        Edge.id, Edge.region, Edge.acked_lineage, Edge.acked_version, Edge.nack_lineage, Edge.nack_version,
        _age_s(Edge.last_seen_at),
    ).join(Identity, Identity.id == Edge.id)
        .where(Identity.revoked_at.is_(None), Edge.last_seen_at > func.now() - LISTED_FOR)
        .order_by(Edge.id).limit(MAX_LISTED))).all()


async def head(session: AsyncSession) -> Any:
    """Lineage and version of the newest snapshot, and its age in seconds, null before the first."""
    return (await session.execute(select(
        RoutingHead.lineage, RoutingHead.version, _age_s(RoutingSnapshot.built_at),
    ).outerjoin(RoutingSnapshot, (RoutingSnapshot.lineage == RoutingHead.lineage)
                & (RoutingSnapshot.version == RoutingHead.version)))).one()


async def votes(session: AsyncSession) -> Rows:
    """How many enrolled edges say what of each datacenter, by what they said of late."""
    return (await session.execute(select(
        EdgeVote.datacenter_id, EdgeVote.verdict, func.count().label("times"),
    ).join(Identity, Identity.id == EdgeVote.edge_id)
        .where(Identity.revoked_at.is_(None), EdgeVote.seen_at > func.now() - VOTES_COUNT_FOR)
        .group_by(EdgeVote.datacenter_id, EdgeVote.verdict))).all()


async def findings(session: AsyncSession) -> Sequence[dict[str, Any]]:
    """What the votes came to when they were counted last, one a datacenter."""
    found: Sequence[dict[str, Any]] = (await session.execute(select(FailoverWatch.findings))).scalar_one()
    return found


async def attempts(session: AsyncSession) -> Rows:
    """Attempts of the last 5 minutes, by model and datacenter."""
    now_s = func.extract("epoch", func.now())
    return (await session.execute(select(
        QualityRow.model_id, QualityRow.datacenter_id, func.sum(QualityRow.succeeded).label("succeeded"),
        func.sum(QualityRow.failed).label("failed"),
    ).where(QualityRow.minute > now_s - ATTEMPTS_COUNT_FOR_S)
        .group_by(QualityRow.model_id, QualityRow.datacenter_id))).all()


async def planner(session: AsyncSession) -> Rows:
    """How long ago was planned: one row, or none."""
    return (await session.execute(select(_age_s(CapacityPlanner.planned_at)))).all()


async def moves(session: AsyncSession) -> Rows:
    """What the planner changed within an hour; `grows` is whether a pool got more."""
    return (await session.execute(select(
        CapacityMove.model_id, (CapacityMove.replicas > 0).label("grows"), func.count().label("times"),
    ).where(CapacityMove.moved_at > func.now() - MOVES_COUNT_FOR)
        .group_by(CapacityMove.model_id, "grows"))).all()


async def open_operations(session: AsyncSession) -> Rows:
    return (await session.execute(select(
        Operation.kind, Operation.state, _age_s(Operation.created_at),
        (Operation.deadline_at < NOW).label("overdue"),
    ).where(Operation.finished_at.is_(None)))).all()


async def ended_operations(session: AsyncSession) -> Rows:
    """How many operations ended in each way; a refusal has the rule's name."""
    return (await session.execute(select(
        Operation.kind, Operation.state, Operation.automatic, func.coalesce(Operation.rule, "").label("rule"),
        func.count().label("times"),
    ).where(Operation.finished_at.is_not(None)).group_by(
        Operation.kind, Operation.state, Operation.automatic, Operation.rule))).all()


async def step_times(session: AsyncSession) -> Rows:
    """How often each step was done, and how many seconds that took in all."""
    took_s = func.extract("epoch", OperationStep.finished_at - OperationStep.started_at)
    return (await session.execute(select(
        Operation.kind, OperationStep.name, func.count().label("times"), func.sum(took_s).label("sum_s"),
    ).join(Operation, Operation.id == OperationStep.operation_id)
        .where(OperationStep.finished_at.is_not(None), OperationStep.started_at.is_not(None))
        .group_by(Operation.kind, OperationStep.name))).all()


async def open_commands(session: AsyncSession) -> Rows:
    return (await session.execute(select(
        Command.fleet_id, Command.kind, func.count().label("times"), _age_s(func.min(Command.issued_at)),
    ).where(Command.status.in_(OPEN_COMMANDS)).group_by(Command.fleet_id, Command.kind))).all()


async def open_requests(session: AsyncSession) -> Any:
    """How many announced requests have no record yet, and the age of the oldest. Their ids are in time's order."""
    oldest = select(UsageOpening.opened_at).order_by(UsageOpening.id).limit(1).scalar_subquery()
    return (await session.execute(select(
        select(func.count()).select_from(UsageOpening).scalar_subquery().label("times"), _age_s(oldest)))).one()


async def quarantined(session: AsyncSession) -> int:
    return (await session.execute(select(func.count()).select_from(UsageQuarantine))).scalar_one()


async def outbox(session: AsyncSession) -> Rows:
    """What waits to be handed over and is due, by topic."""
    return (await session.execute(select(
        OutboxRow.topic, func.count().label("times"),
        _age_s(func.min(case((OutboxRow.due_at <= NOW, OutboxRow.due_at)))),
    ).group_by(OutboxRow.topic))).all()


def _age_s(moment: ColumnElement[Any] | Any) -> ColumnElement[Any]:
    """Seconds since `moment` by the database's clock, null if there is none."""
    return func.extract("epoch", NOW - moment).label("age_s")
