"""A real edge process and the real control plane on the two days that come once in years: everything above the edge is
off and a datacenter has to go, and Postgres comes back older than it was."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest_asyncio
from sqlalchemy import text

from control_plane.cli import edge_calls
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.override import OverrideAction, OverrideOutcome, SignedOverride
from control_plane.contracts.signing import SigningKey
from infra.local.postgres import Postgres
from tests import throwaway
from tests.integration.control_plane.gate import gated
from tests.integration.control_plane.simulated import EAST, WEST, declare, document, running_world
from tests.integration.edge_api.control_plane import listening
from tests.integration.edge_api.process import Datacenter, chat_body, client_of, datacenter, edge_process
from tests.integration.edge_api.test_with_control_plane import House
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.override.orders import order

KEY = SigningKey.generate()


@pytest_asyncio.fixture
async def house(postgres_server: Postgres, migrated_template: str, tmp_path: Path) -> AsyncIterator[House]:
    """A control plane that may go away, and an edge that knows `KEY`."""
    with throwaway.database(postgres_server, migrated_template) as url:
        async with (
            running_world(url, tmp_path, edges=0) as world, datacenter() as west, datacenter() as east,
            listening(world.replica.app) as address, world.running(*world.agents.values()),
            gated(address) as (gate, url),
        ):
            await declare(world.replica, world.operator, document(fleets=fleets({WEST: west, EAST: east})))
            await world.replica.client.post("/operator/v1/operator-keys", headers=world.operator, json={
                "name": "olga", "public_key": KEY.public.text})
            token = await world.replica.enrolment_token(IdentityKind.EDGE, WEST)
            await asyncio.to_thread((tmp_path / "token").write_text, token)
            async with edge_process(tmp_path, url) as edge:
                yield House(world, {WEST: west, EAST: east}, edge, gate)


def fleets(datacenters: dict[str, Datacenter]) -> list[dict[str, Any]]:
    return [{"id": f"{name}-a", "datacenter": name, "ingress_url": f"http://127.0.0.1:{place.port}",
             "gpu_type": "H200", "gpu_total": 8} for name, place in datacenters.items()]


def standing(house: House) -> edge_calls.Asked:
    (asked,) = edge_calls.ask_all([house.edge.url], KEY)
    return asked


async def told(house: House, **changes: Any) -> OverrideOutcome:
    asked = await asyncio.to_thread(standing, house)
    assert asked.standing is not None, asked.fault
    now: dict[str, Any] = {"datacenter": WEST, "edge": asked.standing.edge, "issued_at_s": SystemClock().time_s()}
    made = order(**(now | changes))
    return (await asyncio.to_thread(edge_calls.give, house.edge.url, SignedOverride.seal(made, KEY))).outcome


async def served(house: House, client: httpx.AsyncClient, count: int, name: str) -> dict[str, int]:
    """Where as many requests, each of a session of its own, were served; each must be."""
    before = {place: center.seen for place, center in house.datacenters.items()}
    for number in range(count):
        answer = await client.post("/v1/chat/completions", json=chat_body(prompt_cache_key=f"{name}{number}"))
        assert answer.status_code == 200, answer.text
    return {place: center.seen - before[place] for place, center in house.datacenters.items()}


async def events(house: House, action: str) -> list[dict[str, Any]]:
    answer = await house.world.replica.client.get("/operator/v1/audit?limit=500", headers=house.world.operator)
    return [event for event in answer.json()["data"] if event["action"] == action]


async def test_a_datacenter_is_drained_by_hand_and_comes_back_and_all_is_on_record(house: House) -> None:
    guest = await house.guest()

    async def is_remembered() -> bool:
        """The edge keeps keys on its disk half a second after it learned them; before that a kill forgets them."""
        return await asyncio.to_thread((house.edge.state_dir / "keys.json").is_file)

    async with guest.client() as client:
        assert (await served(house, client, 20, "a"))[WEST] > 0
        await until(is_remembered, 20)
        await house.gate.close()
        assert await told(house) is OverrideOutcome.TAKEN
        assert await served(house, client, 20, "b") == {WEST: 0, EAST: 20}
        await house.edge.stop(signal.SIGKILL)
        await house.edge.start()
        assert await served(house, client, 20, "c") == {WEST: 0, EAST: 20}
        assert await told(house, order_id="ovr_2", datacenter=EAST) is OverrideOutcome.LEAVES_NONE
        assert await told(house, order_id="ovr_3", action=OverrideAction.LIFT) is OverrideOutcome.TAKEN
        assert (await served(house, client, 20, "d"))[WEST] > 0
    await house.gate.open()

    async def is_on_record() -> bool:
        return bool(await events(house, "override.drain")) and bool(await events(house, "override.lift"))

    await until(is_on_record, 20)
    (event,) = await events(house, "override.drain")
    assert (event["actor"], event["after"]["proved"]) == ("operator_key:olga", True)


async def test_an_edge_follows_a_database_that_is_older_than_itself_after_a_recovery(house: House) -> None:
    world = house.world
    for weight in (200, 300, 400):
        places = [{"id": WEST, "region": WEST, "weight": weight}, {"id": EAST, "region": EAST}]
        await declare(world.replica, world.operator, document(
            datacenters=places, fleets=fleets(house.datacenters)))
    async with world.replica.context.db.begin() as session:
        version = (await session.execute(text("SELECT version FROM routing_head"))).scalar_one()

    async def has(lineage: int, least: int) -> bool:
        (edge,) = (await world.status()).edges
        asked = await asyncio.to_thread(standing, house)
        assert asked.standing is not None
        return (asked.standing.lineage, edge.behind) == (lineage, 0) and asked.standing.version >= least

    await until(lambda: has(1, version), 20)
    async with world.replica.context.db.begin() as session:  # as a copy of before the last three changes would have it
        await session.execute(text("UPDATE routing_head SET version = version - 3"))
        await session.execute(text("DELETE FROM routing_snapshot WHERE version > (SELECT version FROM routing_head)"))

    async def is_noticed() -> bool:
        return [one.kind for one in (await world.status()).ahead] == ["edge"]

    await until(is_noticed, 20)
    answer = await world.replica.client.post(
        "/operator/v1/recovery", json={"reason": "the disk died"}, headers=world.operator)
    assert answer.json()["lineage"] == 2, answer.text
    await until(lambda: has(2, 1), 20)
    guest = await house.guest()
    async with client_of(house.edge, guest.key.secret) as client:
        await served(house, client, 5, "e")
    assert (await guest.usage_of(5))["requests"] == 5
