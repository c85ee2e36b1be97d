"""SQL of the routing slice."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.agents.models import AgentLease
from control_plane.identity.models import Identity
from control_plane.routing.models import Edge, Recovery, RoutingHead, RoutingSnapshot
from control_plane.topology.models import Deployment, Fleet

LISTED_FOR = timedelta(days=1)
MAX_LISTED = 2_000
MAX_LINEAGES_AHEAD, MAX_GENERATIONS_AHEAD = 1_000, 10**9
"""How far ahead of an older copy a machine can be. Recoveries are rare, and an hour holds few changes."""


async def head(session: AsyncSession) -> tuple[int, int]:
    """The newest snapshot's lineage and version."""
    row = (await session.execute(select(RoutingHead.lineage, RoutingHead.version))).one()
    return row.lineage, row.version


async def lock_head(session: AsyncSession) -> tuple[int, int]:
    """The same, held until the transaction ends. Always the last lock that a transaction takes."""
    row = (await session.execute(select(RoutingHead.lineage, RoutingHead.version).with_for_update())).one()
    return row.lineage, row.version


async def snapshot(session: AsyncSession, lineage: int, version: int) -> RoutingSnapshot | None:
    return await session.get(RoutingSnapshot, (lineage, version))


async def caused_by(session: AsyncSession, cause: str) -> tuple[int, int] | None:
    """The newest version that `cause` made, if it is kept."""
    row = (await session.execute(select(RoutingSnapshot.lineage, RoutingSnapshot.version).where(
        RoutingSnapshot.cause == cause).order_by(
        RoutingSnapshot.lineage.desc(), RoutingSnapshot.version.desc()).limit(1))).one_or_none()
    return None if row is None else (row.lineage, row.version)


async def add_snapshot(session: AsyncSession, made: RoutingSnapshot, keep: int) -> None:
    """Stores the next snapshot, moves the head to it and forgets all but the newest `keep`."""
    session.add(made)
    await session.flush()
    await session.execute(update(RoutingHead).values(version=made.version))
    await session.execute(delete(RoutingSnapshot).where(
        RoutingSnapshot.lineage == made.lineage, RoutingSnapshot.version <= made.version - keep))


async def store_edge(session: AsyncSession, values: dict[str, Any]) -> None:
    """Notes what an edge reported, at the database's time."""
    row = {**values, "last_seen_at": func.clock_timestamp()}
    changed = {name: value for name, value in row.items() if name != "id"}
    await session.execute(insert(Edge).values(**row).on_conflict_do_update(index_elements=["id"], set_=changed))


async def edge(session: AsyncSession, edge_id: str) -> Edge | None:
    """What an edge reported last."""
    return await session.get(Edge, edge_id)


async def ages_s(session: AsyncSession, lineage: int, after: int, until: int, limit: int) -> Sequence[float]:
    """How many seconds ago each version after `after` and up to `until` was made, the newest first."""
    age_s = func.extract("epoch", func.clock_timestamp() - RoutingSnapshot.built_at)
    return [float(age_s) for age_s in (await session.execute(select(age_s).where(
        RoutingSnapshot.lineage == lineage, RoutingSnapshot.version > after, RoutingSnapshot.version <= until,
    ).order_by(RoutingSnapshot.version.desc()).limit(limit))).scalars()]


async def live_edges(session: AsyncSession, within: timedelta) -> int:
    """How many enrolled edges were heard from of late."""
    return (await session.execute(
        select(func.count()).select_from(Edge).join(Identity, Identity.id == Edge.id)
        .where(Identity.revoked_at.is_(None), Edge.last_seen_at > func.now() - within))).scalar_one()


async def edges(session: AsyncSession) -> Sequence[Edge]:
    """The edges that were heard from within a day and are still enrolled."""
    return (await session.execute(
        select(Edge).join(Identity, Identity.id == Edge.id)
        .where(Identity.revoked_at.is_(None), Edge.last_seen_at > func.now() - LISTED_FOR)
        .order_by(Edge.id).limit(MAX_LISTED).execution_options(populate_existing=True))).scalars().all()


async def recovery(session: AsyncSession, lineage: int) -> Recovery | None:
    return await session.get(Recovery, lineage)


async def edges_ahead(session: AsyncSession, lineage: int, version: int) -> Sequence[Edge]:
    """The edges that use a newer snapshot than the head, heard from within a day and still enrolled."""
    return [edge for edge in await edges(session) if (edge.acked_lineage, edge.acked_version) > (lineage, version)]


async def agents_ahead(session: AsyncSession, lineage: int) -> Sequence[AgentLease]:
    """The agents that follow a higher lineage than `lineage`, or in it a higher epoch or generation than is held."""
    seen = AgentLease.seen_lineage
    further = or_(AgentLease.seen_epoch > AgentLease.epoch, AgentLease.seen_generation > Fleet.generation)
    return (await session.execute(
        select(AgentLease).join(Fleet, Fleet.id == AgentLease.fleet_id)
        .where(or_(seen > lineage, and_(seen == lineage, further)))
        .order_by(AgentLease.fleet_id).limit(MAX_LISTED).execution_options(populate_existing=True))).scalars().all()


async def edges_behind(session: AsyncSession, lineage: int, within: timedelta) -> Sequence[Edge]:
    """The edges that were heard from of late and use a snapshot of a lower lineage."""
    return (await session.execute(
        select(Edge).join(Identity, Identity.id == Edge.id)
        .where(Identity.revoked_at.is_(None), Edge.last_seen_at > func.now() - within, Edge.acked_lineage < lineage)
        .order_by(Edge.id).limit(MAX_LISTED).execution_options(populate_existing=True))).scalars().all()


async def agents_behind(session: AsyncSession, lineage: int) -> Sequence[AgentLease]:
    """The agents with a live lease that follow a lower lineage."""
    return (await session.execute(
        select(AgentLease).where(AgentLease.expires_at > func.clock_timestamp(), AgentLease.seen_lineage < lineage)
        .order_by(AgentLease.fleet_id).limit(MAX_LISTED).execution_options(populate_existing=True))).scalars().all()


async def highest_lineage(session: AsyncSession) -> int:
    """The highest that anybody was ever in, as far as the database was told and can believe: a machine that lies must
    not use up all numbers."""
    own = max([await session.scalar(select(func.max(column))) or 0 for column in (
        RoutingHead.lineage, Recovery.lineage)])
    told = [await session.scalar(select(func.max(column)).where(column <= own + MAX_LINEAGES_AHEAD))
            for column in (Edge.acked_lineage, AgentLease.seen_lineage)]
    return max(own, *(found or 0 for found in told))


async def begin_lineage(session: AsyncSession, made: Recovery) -> None:
    """Moves the head, which is locked, into a new lineage."""
    session.add(made)
    await session.flush()
    await session.execute(update(RoutingHead).values(lineage=made.lineage))


async def raise_generations(session: AsyncSession) -> None:
    """Numbers all desired state above what any agent has said that it saw, as far as that can be true."""
    seen = func.coalesce(select(AgentLease.seen_generation).where(AgentLease.fleet_id == Fleet.id).scalar_subquery(), 0)
    observed = func.coalesce(Deployment.observed_generation, 0)
    await session.execute(select(Fleet.id).order_by(Fleet.id).with_for_update(key_share=True))
    await session.execute(update(Fleet).values(generation=func.greatest(
        Fleet.generation, func.least(seen, Fleet.generation + MAX_GENERATIONS_AHEAD)) + 1))
    await session.execute(update(Deployment).values(
        generation=func.greatest(
            Deployment.generation, func.least(observed, Deployment.generation + MAX_GENERATIONS_AHEAD)) + 1))
