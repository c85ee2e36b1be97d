"""One replica of the control plane to attack."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.control_plane.replica import Replica, running_replica


@pytest.fixture
async def replica(database_url: str, tmp_path: Path) -> AsyncIterator[Replica]:
    """A replica on a fresh database."""
    async with running_replica(database_url, tmp_path) as started:
        yield started
