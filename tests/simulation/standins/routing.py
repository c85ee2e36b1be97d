"""Queries of snapshots and edges."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from control_plane.routing import repository as routing
from tests.simulation.database import Session
from tests.simulation.standins.register import of


@of(routing)
async def head(session: Session) -> tuple[int, int]:
    await session.statement()
    row = session.find("routing_head", True, anew=True)
    return row.lineage, row.version


@of(routing)
async def lock_head(session: Session) -> tuple[int, int]:
    await session.statement()
    await session.hold(("routing_head", True))
    row = session.find("routing_head", True, anew=True)
    return row.lineage, row.version


@of(routing)
async def caused_by(session: Session, cause: str) -> tuple[int, int] | None:
    await session.statement()
    made = [(row.lineage, row.version) for row in session.tables.table("routing_snapshot").values()
            if row.cause == cause]
    made += [(row.lineage, row.version) for (name, _), row in session.written.items()
             if name == "routing_snapshot" and row.cause == cause]
    return max(made, default=None)


@of(routing)
async def add_snapshot(session: Session, made: Any, keep: int) -> None:
    session.add(made)
    await session.statement()
    await session.hold(("routing_head", True))
    session.find("routing_head", True, anew=True).version = made.version
    await session.flush()


@of(routing)
async def store_edge(session: Session, values: dict[str, Any]) -> None:
    await session.statement()
    await session.put("edge", values["id"], **values, last_seen_at=session.tables.now())


@of(routing)
async def ages_s(session: Session, lineage: int, after: int, until: int, limit: int) -> Sequence[float]:
    await session.statement()
    now, stored = session.tables.now(), session.tables.table("routing_snapshot")
    rows = [stored[lineage, version] for version in range(until, after, -1) if (lineage, version) in stored]
    return [(now - row.built_at).total_seconds() for row in rows[:limit]]


@of(routing)
async def live_edges(session: Session, within: timedelta) -> int:
    await session.statement()
    oldest = session.tables.now() - within
    return sum(row.last_seen_at > oldest for row in session.scan("edge", anew=False))


@of(routing)
async def edges(session: Session) -> Sequence[Any]:
    await session.statement()
    return session.scan("edge")


@of(routing)
async def agents_ahead(session: Session, lineage: int) -> Sequence[Any]:
    await session.statement()
    generations = {fleet.id: fleet.generation for fleet in session.scan("fleet")}
    return [row for row in session.scan("agent_lease") if row.seen_lineage > lineage or (
        row.seen_lineage == lineage and (
            row.seen_epoch > row.epoch or row.seen_generation > generations[row.fleet_id]))]


@of(routing)
async def edges_behind(session: Session, lineage: int, within: timedelta) -> Sequence[Any]:
    await session.statement()
    oldest = session.tables.now() - within
    return [row for row in session.scan("edge") if row.last_seen_at > oldest and row.acked_lineage < lineage]


@of(routing)
async def agents_behind(session: Session, lineage: int) -> Sequence[Any]:
    await session.statement()
    now = session.tables.now()
    return [row for row in session.scan("agent_lease") if row.expires_at > now and row.seen_lineage < lineage]


@of(routing)
async def highest_lineage(session: Session) -> int:
    await session.statement()
    held = [row.lineage for table in ("routing_head", "recovery") for row in session.scan(table)]
    told = [row.acked_lineage for row in session.scan("edge")] + [
        row.seen_lineage for row in session.scan("agent_lease")]
    return max((*held, *told))


@of(routing)
async def begin_lineage(session: Session, made: Any) -> None:
    session.add(made)
    await session.statement()
    await session.hold(("routing_head", True))
    session.find("routing_head", True, anew=True).lineage = made.lineage
    await session.flush()


@of(routing)
async def raise_generations(session: Session) -> None:
    await session.statement()
    for pk in sorted(session.tables.table("fleet")):
        await session.hold(("fleet", pk))
    seen = {row.fleet_id: row.seen_generation for row in session.scan("agent_lease")}
    for row in session.scan("fleet"):
        row.generation = max(row.generation, seen.get(row.id, 0)) + 1
    for pk in sorted(session.tables.table("deployment")):
        await session.hold(("deployment", pk))
    for row in session.scan("deployment"):
        row.generation = max(row.generation, row.observed_generation or 0) + 1
    await session.flush()
