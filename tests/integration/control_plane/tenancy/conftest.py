"""A replica with a team in it."""

import pytest

from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.tenancy.asking import Tenants


@pytest.fixture
async def tenants(replica: Replica) -> Tenants:
    return await Tenants.moved_in(replica)
