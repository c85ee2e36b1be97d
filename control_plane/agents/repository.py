"""SQL of the agents slice. Whoever changes a fleet's lease or reports holds the fleet's row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.agents.lease import Lease
from control_plane.agents.models import AgentLease, FleetView
from control_plane.contracts.agent_sync import ObservedPool
from control_plane.contracts.deployment import PoolRole
from control_plane.topology.models import Pool

ROLES = frozenset(role.value for role in PoolRole)


async def lease(session: AsyncSession, fleet_id: str) -> Lease | None:
    """The fleet's lease as the database's clock sees it now."""
    row = (await session.execute(select(
        AgentLease.identity, AgentLease.boot_id, AgentLease.epoch, AgentLease.previous_boot_id,
        (AgentLease.expires_at > func.clock_timestamp()).label("live"),
    ).where(AgentLease.fleet_id == fleet_id))).one_or_none()
    return None if row is None else Lease(*row)


@dataclass(frozen=True, slots=True)
class Fences:
    """What an agent says that it has seen."""

    lineage: int = 0
    epoch: int = 0
    generation: int = 0


async def store_lease(session: AsyncSession, fleet_id: str, held: Lease, ttl_s: float, release: str,
                      seen: Fences) -> None:
    """Grants or renews the lease for `ttl_s` from now, to an agent that has `seen` so much."""
    values: dict[str, Any] = {
        "seen_lineage": seen.lineage, "seen_epoch": seen.epoch, "seen_generation": seen.generation,
        "identity": held.identity, "boot_id": held.boot_id, "previous_boot_id": held.previous_boot_id,
        "epoch": held.epoch, "release": release, "renewed_at": func.clock_timestamp(),
        "expires_at": func.clock_timestamp() + timedelta(seconds=ttl_s)}
    await session.execute(insert(AgentLease).values(fleet_id=fleet_id, **values).on_conflict_do_update(
        index_elements=["fleet_id"], set_=values))


async def leases(session: AsyncSession) -> Sequence[tuple[AgentLease, bool, float]]:
    """Every lease, whether it is live, and its age in seconds since it was renewed."""
    now = func.clock_timestamp()
    return [(row[0], row[1], float(row[2])) for row in (await session.execute(select(
        AgentLease, AgentLease.expires_at > now, func.extract("epoch", now - AgentLease.renewed_at),
    ).order_by(AgentLease.fleet_id))).all()]


async def store_view(session: AsyncSession, fleet_id: str, epoch: int, sample: list[dict[str, Any]]) -> None:
    """Keeps a fleet's newest report."""
    values = {"epoch": epoch, "observed_at": func.clock_timestamp(), "sample": sample}
    await session.execute(insert(FleetView).values(fleet_id=fleet_id, **values).on_conflict_do_update(
        index_elements=["fleet_id"], set_=values))


async def store_ready_replicas(session: AsyncSession, deployment_id: str, pools: Sequence[ObservedPool]) -> None:
    """Notes how many replicas of each role are ready; roles that nobody declared are passed over."""
    for pool in pools:
        if pool.role in ROLES:
            await session.execute(update(Pool).where(
                Pool.deployment_id == deployment_id, Pool.role == PoolRole(pool.role),
            ).values(ready_replicas=pool.ready_replicas))
