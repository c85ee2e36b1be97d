"""The registry of loops that move leased rows on, run by every replica beside its routes."""

import asyncio

from control_plane.capacity.work import CapacityWork
from control_plane.context import AppContext
from control_plane.evidence.work import FailoverWork
from control_plane.operations.pacing import look_every_s, pace_of
from control_plane.operations.work import OperationsWork
from control_plane.reconcile import runner


async def run(context: AppContext) -> None:
    """Runs every loop until cancelled. Each one outlives an absent Postgres by itself."""
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run(context, OperationsWork(context), look_every_s(pace_of(context.settings))),
                          name="operations")
        group.create_task(runner.run(context, CapacityWork(context)), name="capacity")
        group.create_task(runner.run(context, FailoverWork(context)), name="failover")
