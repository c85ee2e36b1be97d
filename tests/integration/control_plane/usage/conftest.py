"""A replica with an edge, a team, its key and a price."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import pytest

from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.usage import UsageAnswer, UsageOpen, UsageRecord, Verdict
from tests.integration.control_plane.replica import Peer, Replica
from tests.unit.control_plane.usage.frames import Maker, batch

PATH = "/edge/v1/usage"


@dataclass(frozen=True)
class Metered:
    """What usage tests speak to."""

    replica: Replica
    edge: Peer
    maker: Maker

    @property
    def now_s(self) -> float:
        return self.replica.context.clock.time_s()

    async def ship(self, *frames: UsageOpen | UsageRecord, edge: Peer | None = None) -> list[Verdict]:
        """Ships a batch as this edge, or another; the verdicts in the batch's order."""
        answer = await self.post(batch(*frames), edge)
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=UsageAnswer).verdicts

    async def post(self, body: bytes, edge: Peer | None = None) -> httpx.Response:
        return await self.replica.signed(edge or self.edge, PATH, body)

    async def rows(self, statement: str) -> Sequence[Any]:
        async with self.replica.context.db.engine.connect() as connection:
            return (await connection.exec_driver_sql(statement)).all()


@pytest.fixture
async def metered(replica: Replica) -> Metered:
    """A replica that can take usage in."""
    team = await replica.team()
    key = await replica.key(team.id)
    await replica.price()
    return Metered(replica, await replica.enrolled(IdentityKind.EDGE), Maker(team.id, key.id))
