"""The bug: safety rules read the datacenters without holding them, so two changes that are each safe alone both pass.

As a plugin of pytest it plants itself: `python -m pytest -p tests.chaos.plants.skip_lock ...`.
"""

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.topology import repository
from control_plane.topology.models import Datacenter


def plant() -> None:
    """Nobody holds a datacenter any more."""
    async def unlocked(session: AsyncSession) -> dict[str, Datacenter]:
        return await repository.every(session, Datacenter)

    repository.lock_datacenters = unlocked


def pytest_configure() -> None:
    plant()
