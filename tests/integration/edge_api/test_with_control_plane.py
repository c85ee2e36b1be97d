"""A real edge process under the real control plane on real Postgres: the whole contract between the two.

They stand once for all tests of this file; each test brings a team and a key of its own and reads only its own usage.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from control_plane.contracts import ids
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.operations import OperationState
from control_plane.contracts.operator import KeyCreated
from control_plane.contracts.topology import TopologyDocument
from infra.local.postgres import Postgres
from tests import throwaway
from tests.integration.control_plane.gate import Gate, gated
from tests.integration.control_plane.replica import PRICE
from tests.integration.control_plane.simulated import EAST, WEST, World, declare, document, running_world
from tests.integration.edge_api.control_plane import listening
from tests.integration.edge_api.process import Datacenter, EdgeProcess, chat_body, client_of, datacenter, edge_process
from tests.integration.edge_api.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class House:
    """Control plane, two datacenters with agents that sync, and one real edge."""

    world: World
    datacenters: dict[str, Datacenter]
    edge: EdgeProcess
    gate: Gate

    async def guest(self) -> "Guest":
        team = await self.world.replica.team(f"team-{ids.uuid7().hex[-12:]}")
        return Guest(self, await self.world.replica.key(team.id))


@dataclass
class Guest:
    """A team with one key."""

    house: House
    key: KeyCreated

    def client(self) -> httpx.AsyncClient:
        return client_of(self.house.edge, self.key.secret)

    async def chats(self, count: int) -> None:
        """Streams that must all come to their end."""
        async with self.client() as client:
            for turn in range(count):
                answer = await client.post("/v1/chat/completions", json=chat_body(prompt_cache_key=f"s{turn}"))
                assert answer.status_code == 200, answer.text
                assert answer.text.endswith("data: [DONE]\n\n")

    async def rotated(self, grace_s: float) -> "Guest":
        """The same team with the key's successor."""
        world = self.house.world
        answer = await world.replica.client.post(
            f"/operator/v1/keys/{self.key.id}/rotate", json={"grace_s": grace_s}, headers=world.operator)
        assert answer.status_code == 201, answer.text
        return Guest(self.house, KeyCreated.model_validate_json(answer.content))

    async def bind(self, what: str, **body: object) -> None:
        """Changes what binds the key."""
        world = self.house.world
        answer = await world.replica.client.put(
            f"/operator/v1/keys/{self.key.id}/{what}", json=body, headers=world.operator)
        assert answer.status_code == 200, answer.text

    async def until_refused(self, within_s: float) -> httpx.Response:
        """The first answer that is none, which must come soon."""
        answers: list[httpx.Response] = []
        async with self.client() as client:

            async def is_refused() -> bool:
                answers.append(await client.post("/v1/chat/completions", json=chat_body()))
                return answers[-1].status_code != 200

            await until(is_refused, within_s)
        return answers[-1]

    async def usage(self) -> dict[str, Any]:
        """The team's sums as an operator sees them."""
        answer = await self.house.world.replica.client.get(
            "/operator/v1/usage", params={"team": self.key.team_id}, headers=self.house.world.operator)
        assert answer.status_code == 200, answer.text
        total: dict[str, Any] = answer.json()["total"]
        return total

    async def usage_of(self, requests: int) -> dict[str, Any]:
        """The sums once as many requests are in them."""
        async def counted() -> bool:
            return bool((await self.usage())["requests"] >= requests)

        await until(counted, 20)
        return await self.usage()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(
        postgres_server: Postgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[House]:
    directory = tmp_path_factory.mktemp("house")
    with throwaway.database(postgres_server, migrated_template) as url:
        async with (
            running_world(url, directory, edges=0) as world, datacenter(pause_s=0.01) as west,
            datacenter(pause_s=0.01) as east, listening(world.replica.app) as address,
            world.running(*world.agents.values()), gated(address) as (gate, url),
        ):
            await _move_ingresses(world, {WEST: west, EAST: east})
            await _give_token(directory, await world.replica.enrolment_token(IdentityKind.EDGE, WEST))
            async with edge_process(directory, url) as edge:
                yield House(world, {WEST: west, EAST: east}, edge, gate)


async def _move_ingresses(world: World, datacenters: dict[str, Datacenter]) -> None:
    fleets = [{"id": f"{name}-a", "datacenter": name, "ingress_url": f"http://127.0.0.1:{place.port}",
               "gpu_type": "H200", "gpu_total": 8} for name, place in datacenters.items()]
    declared = await declare(world.replica, world.operator, document(fleets=fleets))
    assert declared.status_code == 200, declared.text


async def _give_token(directory: Path, token: str) -> None:
    await asyncio.to_thread((directory / "token").write_text, token)


async def test_requests_become_exactly_as_many_priced_records(house: House) -> None:
    guest = await house.guest()
    await guest.chats(20)
    total = await guest.usage_of(20)
    assert (total["requests"], total["prompt_tokens"], total["completion_tokens"]) == (20, 20 * 16, 20 * 5)
    assert Decimal(total["cost_usd"]) == 320 * Decimal("0.0000006") + 100 * Decimal("0.0000022")


async def test_usage_is_counted_once_over_a_restart_that_lost_its_cursor(house: House) -> None:
    guest = await house.guest()
    await guest.chats(10)
    await house.edge.stop()
    (house.edge.state_dir / "outbox" / "cursor.json").unlink(missing_ok=True)
    await house.edge.start()
    await guest.chats(10)
    assert (await guest.usage_of(20))["requests"] == 20


async def test_status_shows_the_edge_and_the_snapshot_that_it_uses(house: House) -> None:
    async def is_up_to_date() -> bool:
        return (await house.world.status()).edges[0].behind == 0

    await until(is_up_to_date)
    (edge,) = (await house.world.status()).edges
    assert (edge.region, edge.live, edge.nack) == (WEST, True, None)
    assert set(edge.open_requests) == {WEST, EAST}


async def test_a_drain_under_load_disturbs_nobody_and_ends(house: House) -> None:
    guest = await house.guest()
    await guest.chats(10)
    assert house.datacenters[WEST].seen
    load = [asyncio.create_task(guest.chats(30)) for _ in range(5)]
    ended = await house.world.ended(await house.world.started("drain", WEST))
    assert ended.state is OperationState.SUCCEEDED, ended
    await asyncio.gather(*load)
    before = house.datacenters[WEST].seen
    await guest.chats(20)
    assert house.datacenters[WEST].seen == before
    assert (await guest.usage_of(180))["requests"] == 180


async def test_a_revoked_key_is_refused_within_5_seconds(house: House) -> None:
    guest = await house.guest()
    await guest.chats(1)
    revoked = await house.world.replica.client.delete(
        f"/operator/v1/keys/{guest.key.id}", headers=house.world.operator)
    assert revoked.status_code < 300, revoked.text
    answers: list[httpx.Response] = []
    async with guest.client() as client:

        async def is_refused() -> bool:
            answers.append(await client.post("/v1/chat/completions", json=chat_body()))
            return answers[-1].status_code != 200

        await until(is_refused, 5)
    assert (answers[-1].status_code, answers[-1].json()["error"]["code"]) == (401, "invalid_api_key")


async def test_old_and_new_secret_work_until_the_grace_is_over_then_the_old_one_is_refused(house: House) -> None:
    guest = await house.guest()
    await guest.chats(1)
    successor = await guest.rotated(3.0)
    await successor.chats(1)
    await guest.chats(1)
    answer = await guest.until_refused(3.0 + 5.0)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    await successor.chats(1)


async def test_a_grace_ends_while_the_control_plane_is_away(house: House) -> None:
    guest = await house.guest()
    await guest.chats(1)
    successor = await guest.rotated(3.0)
    await successor.chats(1)
    await asyncio.sleep(1.0)  # the edge polls all the time, and hears of it at once
    await house.gate.close()
    try:
        await guest.chats(1)
        answer = await guest.until_refused(2.0 + 5.0)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        await successor.chats(1)
    finally:
        await house.gate.open()


async def test_what_binds_a_key_changes_within_5_seconds_and_holds_while_the_control_plane_is_away(
        house: House) -> None:
    guest = await house.guest()
    await guest.chats(1)
    other = document().models[0].model_copy(update={"id": "sim/other", "price": PRICE.model_copy(
        update={"version": "pv_other"})})
    assert (await declare(house.world.replica, house.world.operator, TopologyDocument(models=[other]))).is_success
    await guest.bind("models", models=["sim/other"])
    answer = await guest.until_refused(5.0)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    await house.gate.close()
    try:
        assert (await guest.until_refused(0.1)).status_code == 404
    finally:
        await house.gate.open()
    await guest.bind("models", models=None)

    async def is_served() -> bool:
        async with guest.client() as client:
            return (await client.post("/v1/chat/completions", json=chat_body())).status_code == 200

    await until(is_served, 5)


async def test_a_key_that_nobody_issued_is_refused(house: House) -> None:
    async with client_of(house.edge) as client:  # well-formed, and of another installation
        answer = await client.post("/v1/chat/completions", json=chat_body())
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
