"""Queries of what is declared, and of agents."""

from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from control_plane.agents import repository as agents
from control_plane.agents.lease import Lease
from control_plane.contracts.snapshot import TrafficState
from control_plane.topology import repository as topology
from control_plane.topology.states import RAMPED
from tests.simulation.database import Session
from tests.simulation.standins.register import of


@of(topology)
async def every(session: Session, table: Any, lock: bool = False) -> dict[str, Any]:
    await session.statement()
    name = table.__tablename__
    if lock:
        for pk in sorted(session.tables.table(name)):
            await session.hold((name, pk))
    return {row.id: row for row in session.scan(name)}


@of(topology)
async def pools(session: Session) -> Sequence[Any]:
    await session.statement()
    return session.scan("pool", anew=False)


@of(topology)
async def lock_fleet(session: Session, fleet_id: str) -> Any:
    await session.statement()
    await session.hold(("fleet", fleet_id))
    return session.find("fleet", fleet_id, anew=True)


@of(topology)
async def deployments_of(session: Session, fleet_id: str) -> Sequence[Any]:
    await session.statement()
    return [one for one in session.scan("deployment", anew=False) if one.fleet_id == fleet_id]


@of(topology)
async def pools_of(session: Session, fleet_id: str) -> Sequence[Any]:
    await session.statement()
    mine = {one.id for one in session.scan("deployment", anew=False) if one.fleet_id == fleet_id}
    return [pool for pool in session.scan("pool", anew=False) if pool.deployment_id in mine]


@of(topology)
async def models(session: Session, model_ids: Sequence[str]) -> dict[str, Any]:
    await session.statement()
    return {row.id: row for row in session.scan("model", anew=False) if row.id in model_ids}


@of(topology)
async def moving_datacenters(session: Session) -> set[str]:
    await session.statement()
    return {row.id for row in session.scan("datacenter", anew=False)
            if row.traffic_state in RAMPED or row.traffic_state is TrafficState.RECOVERING}


@of(topology)
async def routing_rows(session: Session) -> dict[str, Sequence[Any]]:
    await session.statement()
    replicas: dict[str, int] = {}
    for pool in session.scan("pool"):
        replicas[pool.deployment_id] = replicas.get(pool.deployment_id, 0) + pool.replicas
    fleets = {fleet.id: fleet for fleet in session.scan("fleet")}
    return {"datacenters": session.scan("datacenter"), "models": session.scan("model"), "deployments": [
        SimpleNamespace(
            id=one.id, model_id=one.model_id, fleet_id=one.fleet_id, datacenter_id=fleets[one.fleet_id].datacenter_id,
            ingress_url=fleets[one.fleet_id].ingress_url, phase=one.phase, facts=one.facts,
            share_permille=one.share_permille, replicas=replicas.get(one.id, 0))
        for one in session.scan("deployment")]}


@of(agents)
async def lease(session: Session, fleet_id: str) -> Lease | None:
    await session.statement()
    row = session.find("agent_lease", fleet_id, anew=True)
    if row is None:
        return None
    return Lease(row.identity, row.boot_id, row.epoch, row.previous_boot_id, row.expires_at > session.tables.now())


@of(agents)
async def store_lease(session: Session, fleet_id: str, held: Lease, ttl_s: float, release: str,
                      seen: agents.Fences) -> None:
    await session.statement()
    now = session.tables.now()
    await session.put("agent_lease", fleet_id, fleet_id=fleet_id, seen_lineage=seen.lineage, seen_epoch=seen.epoch,
                      seen_generation=seen.generation, identity=held.identity, boot_id=held.boot_id,
                      previous_boot_id=held.previous_boot_id, epoch=held.epoch, release=release, renewed_at=now,
                      expires_at=now + timedelta(seconds=ttl_s))


@of(agents)
async def store_view(session: Session, fleet_id: str, epoch: int, sample: list[dict[str, Any]]) -> None:
    await session.statement()
    await session.put("fleet_view", fleet_id, epoch=epoch, observed_at=session.tables.now(), sample=sample)


@of(agents)
async def store_ready_replicas(session: Session, deployment_id: str, pools: Sequence[Any]) -> None:
    for pool in pools:
        await session.statement()
        row = session.find("pool", (deployment_id, pool.role), anew=True)
        if row is not None:
            row.ready_replicas = pool.ready_replicas
