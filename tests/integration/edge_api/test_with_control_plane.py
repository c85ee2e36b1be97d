"""A real edge process under the real control plane on real Postgres: the whole contract between the two."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.operator import KeyCreated, OperationState
from tests.integration.control_plane.simulated import EAST, WEST, World, declare, document, running_world
from tests.integration.edge_api.control_plane import listening
from tests.integration.edge_api.process import Datacenter, EdgeProcess, chat_body, client_of, datacenter, edge_process
from tests.integration.edge_api.waiting import until


@dataclass
class House:
    """Control plane, two datacenters with agents that sync, and one real edge."""

    world: World
    datacenters: dict[str, Datacenter]
    edge: EdgeProcess
    key: KeyCreated

    async def usage(self) -> dict[str, object]:
        """The sums of the last day as an operator sees them."""
        answer = await self.world.replica.client.get("/operator/v1/usage", headers=self.world.operator)
        assert answer.status_code == 200, answer.text
        total: dict[str, object] = answer.json()["total"]
        return total

    async def usage_of(self, requests: int) -> dict[str, object]:
        """The sums once as many requests are in them."""
        async def counted() -> bool:
            return (await self.usage())["requests"] == requests

        await until(counted, 20)
        return await self.usage()


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with running_world(database_url, tmp_path, edges=0) as world, standing(world, tmp_path) as house:
        yield house


@asynccontextmanager
async def standing(world: World, directory: Path) -> AsyncIterator[House]:
    async with (
        datacenter(pause_s=0.01) as west, datacenter(pause_s=0.01) as east,
        listening(world.replica.app) as url, world.running(*world.agents.values()),
    ):
        datacenters = {WEST: west, EAST: east}
        fleets = [{"id": f"{name}-a", "datacenter": name, "ingress_url": f"http://127.0.0.1:{place.port}",
                   "gpu_type": "H200", "gpu_total": 8} for name, place in datacenters.items()]
        declared = await declare(world.replica, world.operator, document(fleets=fleets))
        assert declared.status_code == 200, declared.text
        token = await world.replica.enrolment_token(IdentityKind.EDGE, WEST)
        await asyncio.to_thread((directory / "token").write_text, token)
        key = await world.replica.key((await world.replica.team()).id)
        async with edge_process(directory, url) as edge:
            yield House(world, datacenters, edge, key)


async def chats(client: httpx.AsyncClient, count: int) -> None:
    for turn in range(count):
        answer = await client.post("/v1/chat/completions", json=chat_body(prompt_cache_key=f"s{turn}"))
        assert answer.status_code == 200, answer.text
        assert answer.text.endswith("data: [DONE]\n\n")


async def test_requests_become_exactly_as_many_priced_records(house: House) -> None:
    async with client_of(house.edge, house.key.secret) as client:
        await chats(client, 20)
    total = await house.usage_of(20)
    assert (total["prompt_tokens"], total["completion_tokens"]) == (20 * 16, 20 * 5)
    assert total["cost_usd"] == "0.000412"  # 320 x 0.0000006 + 100 x 0.0000022


async def test_usage_is_counted_once_over_a_kill_and_a_restart(house: House) -> None:
    async with client_of(house.edge, house.key.secret) as client:
        await chats(client, 10)
        await house.edge.stop()
        (house.edge.state_dir / "outbox" / "cursor.json").unlink(missing_ok=True)
        await house.edge.start()
        await chats(client, 10)
    assert (await house.usage_of(20))["requests"] == 20


async def test_status_shows_the_edge_and_the_snapshot_that_it_uses(house: House) -> None:
    async def is_up_to_date() -> bool:
        return (await house.world.status()).edges[0].behind == 0

    await until(is_up_to_date)
    (edge,) = (await house.world.status()).edges
    assert (edge.region, edge.live, edge.nack) == (WEST, True, None)
    assert set(edge.open_requests) == {WEST, EAST}


async def test_a_drain_under_load_disturbs_nobody_and_ends(house: House) -> None:
    async with client_of(house.edge, house.key.secret) as client:
        await chats(client, 10)
        assert house.datacenters[WEST].seen
        load = [asyncio.create_task(chats(client, 30)) for _ in range(5)]
        ended = await house.world.ended(await house.world.started("drain", WEST))
        assert ended.state is OperationState.SUCCEEDED, ended
        await asyncio.gather(*load)
        before = house.datacenters[WEST].seen
        await chats(client, 20)
        assert house.datacenters[WEST].seen == before
    await house.usage_of(180)


async def test_a_revoked_key_is_refused_within_5_seconds(house: House) -> None:
    async with client_of(house.edge, house.key.secret) as client:
        await chats(client, 1)
        revoked = await house.world.replica.client.delete(
            f"/operator/v1/keys/{house.key.id}", headers=house.world.operator)
        assert revoked.status_code < 300, revoked.text
        answers: list[httpx.Response] = []

        async def is_refused() -> bool:
            answers.append(await client.post("/v1/chat/completions", json=chat_body()))
            return answers[-1].status_code != 200

        await until(is_refused, 5)
        answer = answers[-1]
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_a_key_that_nobody_issued_is_refused(house: House) -> None:
    async with client_of(house.edge) as client:  # well-formed, and of another installation
        answer = await client.post("/v1/chat/completions", json=chat_body())
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
