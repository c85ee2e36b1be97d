"""Two real edge processes, one real control plane on Postgres, one Valkey: what a team may use, it may use once.

They stand once for all tests of this file; each test brings a team and a key of its own.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from control_plane.contracts import ids
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.operator import KeyCreated
from edge_api.admission.money import SCARCE_IDLE_S
from infra.local.postgres import Postgres
from tests import throwaway
from tests.integration.control_plane.simulated import EAST, WEST, World, declare, document, running_world
from tests.integration.edge_api.admission.places import OwnValkey, own_valkey
from tests.integration.edge_api.control_plane import listening
from tests.integration.edge_api.process import Datacenter, EdgeProcess, chat_body, client_of, datacenter, edge_process
from tests.integration.edge_api.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

COST_USD = 16 * Decimal("0.0000006") + 5 * Decimal("0.0000022")
SMALL = {"max_tokens": 5}


@dataclass
class House:
    """A control plane, a datacenter at both ends, a Valkey, and two edges."""

    world: World
    valkey: OwnValkey
    edges: tuple[EdgeProcess, EdgeProcess]

    async def guest(self) -> "Guest":
        slug = f"team-{ids.uuid7().hex[-12:]}"
        team = await self.world.replica.team(slug)
        return Guest(self, slug, await self.world.replica.key(team.id))

    async def order(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """What the operator API answers; it must accept."""
        answer = await self.world.replica.client.request(
            method, f"/operator/v1{path}", json=body, headers=self.world.operator)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None


@dataclass
class Guest:
    """A team with one key."""

    house: House
    slug: str
    key: KeyCreated

    async def prepaid(self, credit_usd: Decimal) -> None:
        await self.house.order("PUT", f"/teams/{self.slug}/billing", {"mode": "prepaid", "overdraft_usd": "0"})
        await self.credit(credit_usd)

    async def credit(self, credit_usd: Decimal) -> None:
        await self.house.order(
            "POST", f"/teams/{self.slug}/credits", {"amount_usd": f"{credit_usd:f}", "reason": "test"})

    async def limit(self, **figures: int) -> None:
        await self.house.order("PUT", "/limits", {"team": self.slug} | figures)

    def client(self, at: int) -> httpx.AsyncClient:
        return client_of(self.house.edges[at % 2], self.key.secret)

    async def chat(self, at: int, **fields: object) -> httpx.Response:
        async with self.client(at) as client:
            return await client.post("/v1/chat/completions", json=chat_body(**SMALL | fields))

    async def chats(self, count: int) -> Counter[int]:
        """Statuses of so many requests at once, on both edges in turn."""
        answers = await asyncio.gather(*(self.chat(at) for at in range(count)))
        return Counter(answer.status_code for answer in answers)

    async def usage(self) -> dict[str, Any]:
        listed = await self.house.order("GET", f"/usage?team={self.key.team_id}")
        total: dict[str, Any] = listed["total"]
        return total

    async def leases(self) -> list[dict[str, Any]]:
        """The team's open leases."""
        listed = await self.house.order("GET", "/money/leases?limit=200")
        return [lease for lease in listed["data"] if lease["scope_id"] == self.key.team_id]

    async def has_no_leases(self) -> bool:
        return not await self.leases()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(
        postgres_server: Postgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[House]:
    places = [tmp_path_factory.mktemp(name) for name in ("edge-a", "edge-b")]
    with throwaway.database(postgres_server, migrated_template) as url, own_valkey() as valkey:
        async with (
            running_world(url, tmp_path_factory.mktemp("house"), edges=0) as world, datacenter(pause_s=0.005) as west,
            datacenter(pause_s=0.005) as east, listening(world.replica.app) as address,
            world.running(*world.agents.values()),
        ):
            await _move_ingresses(world, {WEST: west, EAST: east})
            for place in places:
                await _give_token(place, await world.replica.enrolment_token(IdentityKind.EDGE, WEST))
            async with (edge_process(places[0], address, valkey_url=valkey.url) as first,
                        edge_process(places[1], address, valkey_url=valkey.url) as second):
                yield House(world, valkey, (first, second))


async def _move_ingresses(world: World, datacenters: dict[str, Datacenter]) -> None:
    fleets = [{"id": f"{name}-a", "datacenter": name, "ingress_url": f"http://127.0.0.1:{place.port}",
               "gpu_type": "H200", "gpu_total": 8} for name, place in datacenters.items()]
    declared = await declare(world.replica, world.operator, document(fleets=fleets))
    assert declared.status_code == 200, declared.text


async def _give_token(directory: Path, token: str) -> None:
    await asyncio.to_thread((directory / "token").write_text, token)


async def test_200_at_once_and_then_one_by_one_spend_no_more_than_the_balance(house: House) -> None:
    guest, balance = await house.guest(), 60 * COST_USD
    await guest.prepaid(balance)
    statuses = await guest.chats(200)
    assert set(statuses) <= {200, 402}
    served = statuses[200]
    refused = 0
    while refused < 4:  # what the other edge still holds comes back within seconds
        answer = await guest.chat(served)
        served += answer.status_code == 200
        if answer.status_code == 402:
            refused += 1
            await asyncio.sleep(SCARCE_IDLE_S)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (402, "insufficient_quota", "insufficient_funds")
    assert answer.headers["x-should-retry"] == "false"

    async def is_booked() -> bool:
        return bool((await guest.usage())["requests"] == served)

    await until(is_booked)
    assert balance / 2 < Decimal((await guest.usage())["cost_usd"]) <= balance


async def test_new_credit_is_spent_within_seconds(house: House) -> None:
    guest = await house.guest()
    await guest.prepaid(COST_USD)
    assert (await guest.chat(0)).status_code == 402
    await guest.credit(Decimal(1))

    async def is_served() -> bool:
        return (await guest.chat(0)).status_code == 200

    await until(is_served, 3)


async def test_an_exceeded_budget_says_when_it_begins_anew(house: House) -> None:
    guest = await house.guest()
    await house.order("PUT", f"/budgets/key/{guest.key.id}/daily", {"limit_usd": "0.000001"})
    answer = await guest.chat(0)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (402, "budget_exceeded")
    assert (error["metadata"]["scope"], error["metadata"]["interval"]) == ("key", "daily")
    assert error["metadata"]["resets_at"].endswith("T00:00:00Z")


async def test_two_edges_keep_one_limit_of_requests(house: House) -> None:
    guest = await house.guest()
    await guest.limit(requests_per_minute=30)
    statuses = await guest.chats(60)
    served = statuses[200]
    for at in range(20):
        served += (await guest.chat(at)).status_code == 200
    assert 28 <= served <= 30 + 2
    answer = await guest.chat(0)
    assert answer.status_code == 429
    assert answer.json()["error"]["metadata"]["limit"] == "team.requests_per_minute"
    assert answer.headers["x-ratelimit-limit-requests"] == "30"
    assert int(answer.headers["retry-after"]) <= 120


async def test_five_at_once_do_not_exceed_a_limit_of_tokens(house: House) -> None:
    guest = await house.guest()
    await guest.limit(tokens_per_minute=700)
    assert (await guest.chats(5))[200] <= 700 // 100
    answer = await guest.chat(0, max_tokens=1000)
    assert (answer.status_code, answer.headers["x-should-retry"]) == (429, "false")


async def test_a_slot_is_free_after_a_stream_that_its_client_left(house: House) -> None:
    guest = await house.guest()
    await guest.limit(concurrency=1)
    for at in range(4):
        async with guest.client(at) as client, client.stream(
                "POST", "/v1/chat/completions", json=chat_body(**SMALL)) as stream:
            assert stream.status_code == 200
            await anext(stream.aiter_bytes())

        async def is_free(edge: int = at + 1) -> bool:
            return (await guest.chat(edge)).status_code == 200

        await until(is_free, 2)


async def test_leases_are_given_back_by_an_edge_that_ends(house: House) -> None:
    guest = await house.guest()
    await guest.prepaid(Decimal(1))
    assert (await guest.chat(0)).status_code == 200
    assert await guest.leases()
    await house.edges[0].stop()
    assert await guest.leases() == []
    await house.edges[0].start()


async def test_a_killed_edges_leases_are_closed_by_its_next_boot(house: House) -> None:
    guest = await house.guest()
    await guest.prepaid(Decimal(1))
    assert (await guest.chat(0)).status_code == 200
    await house.edges[0].stop(signal.SIGKILL)
    assert await guest.leases()
    await house.edges[0].start()
    await until(guest.has_no_leases)


async def test_a_killed_edges_slots_are_its_own_again_when_it_starts(house: House) -> None:
    guest = await house.guest()
    await guest.limit(concurrency=1)
    async with guest.client(0) as client, client.stream(
            "POST", "/v1/chat/completions", json=chat_body(**SMALL)) as stream:
        assert stream.status_code == 200
        await house.edges[0].stop(signal.SIGKILL)
    await house.edges[0].start()
    assert (await guest.chat(0)).status_code == 200


async def test_without_valkey_requests_are_judged_at_once_and_nobody_is_turned_away_as_a_stranger(
        house: House) -> None:
    guest = await house.guest()
    await guest.limit(requests_per_minute=20)
    assert (await guest.chat(0)).status_code == 200
    house.valkey.stop()
    try:
        clock, statuses = SystemClock(), Counter[int]()
        async with guest.client(0) as client:
            for _ in range(40):
                started_s = clock.monotonic_s()
                answer = await client.post("/v1/chat/completions", json=chat_body(**SMALL))
                statuses[answer.status_code] += 1
                assert clock.monotonic_s() - started_s < 1
        assert set(statuses) == {200, 429}
        assert 8 <= statuses[200] <= 10
    finally:
        house.valkey.go_on()
