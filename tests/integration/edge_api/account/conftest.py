"""An edge's cold routes before the real control plane on real Postgres, a gate between them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from control_plane.contracts.clock import SystemClock
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.operator import KeyCreated
from control_plane.contracts.usage import UsageBatch, UsageRecord
from edge_api.account.desk import AccountDesk
from edge_api.app import ColdParts, build_app
from edge_api.auth import Keyring
from edge_api.identity import ControlPlaneLink, enrol_until_done
from edge_api.key_store import KeyStore
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.snapshot.holder import TableHolder
from tests.integration.control_plane.gate import Gate, gated
from tests.integration.control_plane.replica import Replica, running_replica
from tests.integration.control_plane.simulated import WEST, declare, document
from tests.integration.edge_api.control_plane import listening
from tests.unit.control_plane.usage.frames import Maker
from tests.unit.edge_api.builders import snapshot


@dataclass
class House:
    """One edge's cold routes, its keyring, and what stands above them."""

    replica: Replica
    gate: Gate
    link: ControlPlaneLink
    keyring: Keyring
    client: httpx.AsyncClient
    url: str
    operator: dict[str, str] = field(default_factory=dict)

    async def ship(self, *records: UsageRecord) -> None:
        """Stores usage as an edge ships it."""
        batch = UsageBatch("boot-1", sorted(records, key=lambda record: record.request_id))
        answer = await self.link.post("/edge/v1/usage", msgspec.json.encode(batch), 5.0)
        assert answer.status_code == 200, answer.text
        assert set(answer.json()["verdicts"]) == {"stored"}

    async def guest(self, slug: str = "acme") -> "Guest":
        team = await self.replica.team(slug)
        key = await self.replica.key(team.id)
        return Guest(self, key, Maker(team.id, key.id))


@dataclass
class Guest:
    """A team with one key."""

    house: House
    key: KeyCreated
    maker: Maker

    async def get(self, path: str, prefix: str = "/v1", **headers: str) -> httpx.Response:
        return await self.house.client.get(
            prefix + path, headers={"authorization": f"Bearer {self.key.secret}"} | headers)

    def record(self, **changes: Any) -> UsageRecord:
        return self.maker.record(self.house.replica.context.clock.time_s(), **changes)


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with (
        running_replica(database_url, tmp_path) as replica, listening(replica.app) as address,
        gated(address) as (gate, url),
    ):
        operator = await replica.operator()
        assert (await declare(replica, operator, document())).status_code == 200
        (tmp_path / "token").write_text(await replica.enrolment_token(IdentityKind.EDGE, WEST))
        link = ControlPlaneLink([url], SystemClock())
        await enrol_until_done(link, tmp_path / "edge", tmp_path / "token", [url])
        keyring = Keyring(link, KeyStore(tmp_path / "keys.json"), SystemClock(), Metrics(), 100, 60.0)
        holder = TableHolder()
        holder.take(snapshot())
        desk = AccountDesk(keyring, link, SystemClock(), lambda peer, _: peer)
        app = build_app(ColdParts(holder, OpenRequests(), Metrics(), lambda: "", ["/v1/chat/completions"], desk))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://edge") as client:
            yield House(replica, gate, link, keyring, client, url, operator)
        await link.aclose()


@pytest.fixture
async def guest(house: House) -> Guest:
    return await house.guest()
