"""SQL of the routing slice."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.identity.models import Identity
from control_plane.routing.models import Edge, RoutingHead, RoutingSnapshot

LISTED_FOR = timedelta(days=1)
MAX_LISTED = 2_000


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
