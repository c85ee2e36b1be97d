"""Applies what a step decided, in the transaction that read its facts."""

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts.signing import SigningKey
from control_plane.db import notify
from control_plane.operations import commands
from control_plane.operations.decision import Decision, Specification
from control_plane.operations.models import Operation
from control_plane.operations.scope import DeploymentRow, Scope
from control_plane.routing import publisher
from control_plane.topology import repository as topology
from control_plane.topology.models import Datacenter
from control_plane.topology.service import fleet_channel, move_traffic, replace_pools, touch


async def apply_effects(session: AsyncSession, key: SigningKey, operation: Operation, decision: Decision,
                        seen: Scope) -> None:
    """Moves traffic and shares, changes specifications, gives orders, and publishes if edges route by any of it."""
    by = f"operation:{operation.id}"
    if operation.datacenter_id is not None:
        _move_datacenter(seen.datacenters[operation.datacenter_id], decision, by, operation.reason)
    deployments = {one.row.id: one for one in seen.deployments}
    for deployment_id, share in decision.shares.items():
        deployments[deployment_id].row.share_permille = share
    for specification in decision.specifications:
        await _respecify(session, deployments[specification.deployment_id], specification)
    if decision.undo:
        operation.undo = {**operation.undo, **decision.undo}
    if decision.orders:
        await commands.issue(session, operation, decision.orders)
    if decision.changes_routing or decision.specifications:
        await session.flush()
        await publisher.publish(session, key, by)


def _move_datacenter(place: Datacenter, decision: Decision, by: str, reason: str) -> None:
    for event in decision.moves:
        move_traffic(place, event, by, reason)
    changes = {"ramp_percent": decision.ramp_percent, "evacuate": decision.evacuate}
    for name, value in changes.items():
        if value is not None and getattr(place, name) != value:
            setattr(place, name, value)
            touch(place, by, reason)


async def _respecify(session: AsyncSession, one: DeploymentRow, wanted: Specification) -> None:
    """Gives a deployment another specification under the next generation of it and of its fleet."""
    fleet = await topology.lock_fleet(session, one.row.fleet_id)
    assert fleet is not None  # noqa: S101 - a deployment refers to it
    one.row.engine, one.row.generation = dict(wanted.engine), one.row.generation + 1
    await replace_pools(session, one.row.id, one.pools, wanted.pools)
    fleet.generation += 1
    await notify(session, fleet_channel(fleet.id))
