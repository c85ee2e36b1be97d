"""Filling a real control plane through its operator API, again and again."""

import asyncio
import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from infra.local import child, processes, provision
from infra.local.child import ProcessSpec
from infra.local.errors import StackRefused
from infra.local.layout import Layout, open_layout
from infra.local.ports import HOST, free_port
from infra.local.postgres import Postgres
from infra.local.provision import OperatorApi
from infra.local.readiness import answers
from infra.local.shape import TEAM, Shape
from infra.local.valkey import Valkey
from tests import throwaway

SHAPE = Shape(8700, datacenter_count=2, edge_count=1, replica_count=1, engine="sim")


@dataclass(frozen=True)
class Running:
    """A control plane on a database of its own, and the first operator token."""

    url: str
    token: str
    layout: Layout

    async def get(self, path: str) -> dict[str, list[dict[str, str]]]:
        async with httpx.AsyncClient(trust_env=False, headers={"authorization": f"Bearer {self.token}"}) as client:
            answer = await client.get(self.url + path)
            answer.raise_for_status()
            found: dict[str, list[dict[str, str]]] = answer.json()
            return found


def at(spec: ProcessSpec, database_url: str, redis_url: str, port: int) -> ProcessSpec:
    """A process of the stack, moved onto the servers of the test session."""
    moved = {"MERIDIAN_DATABASE_URL": database_url, "MERIDIAN_REDIS_URL": redis_url, "MERIDIAN_PORT": str(port)}
    return replace(spec, env=spec.env | moved)


@pytest.fixture(scope="module")
def control_plane(postgres_server: Postgres, migrated_template: str, valkey_server: Valkey) -> Iterator[Running]:
    """One control plane for this file, on a database of its own."""
    with (throwaway.directory() as directory, throwaway.database(postgres_server, migrated_template) as database_url,
          opened(directory / "state") as layout):
        secrets, port = layout.read_secrets(), free_port()
        spec = at(processes.control_plane(layout, SHAPE, secrets, 0), database_url, valkey_server.url, port)
        process = child.start(spec)
        try:
            throwaway.run(serves(f"http://{HOST}:{port}/readyz"))
            first = at(processes.bootstrap(layout, SHAPE, secrets), database_url, valkey_server.url, port)
            yield Running(f"http://{HOST}:{port}", provision.bootstrap(first), layout)
        finally:
            child.stop(process, spec)


@contextlib.contextmanager
def opened(state: Path) -> Iterator[Layout]:
    layout, lock = open_layout(state)
    with lock:
        yield layout


async def serves(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(60):
        ready = answers(client, url)
        while not await ready():  # noqa: ASYNC110  another process has no event to wait for
            await asyncio.sleep(0.05)


@pytest.fixture
def running(control_plane: Running, tmp_path: Path) -> Iterator[Running]:
    """The control plane, asked by a stack whose state is new."""
    with opened(tmp_path / "state") as layout:
        yield replace(control_plane, layout=layout)


async def provide(running: Running, shape: Shape = SHAPE) -> str:
    """Provisions once more, as a start does; the API key."""
    async with OperatorApi(running.url, running.token) as api:
        return (await provision.provision(api, running.layout, shape, running.layout.read_secrets())).api_key


async def test_a_fresh_control_plane_gets_team_key_and_topology(running: Running) -> None:
    key = await provide(running)
    assert [team["slug"] for team in (await running.get("/operator/v1/teams"))["data"]] == [TEAM]
    declared = {place["id"] for place in (await running.get("/operator/v1/topology"))["datacenters"]}
    assert declared >= set(SHAPE.datacenters)
    assert running.layout.read_secrets().api_key == key


async def test_a_second_start_finds_everything_again(running: Running) -> None:
    key = await provide(running)
    keys = await running.get(f"/operator/v1/teams/{TEAM}/keys")
    assert await provide(running) == key
    assert await running.get(f"/operator/v1/teams/{TEAM}/keys") == keys
    assert len((await running.get("/operator/v1/teams"))["data"]) == 1


async def test_the_team_is_prepaid_and_has_credit_given_once(running: Running) -> None:
    await provide(running)
    await provide(running)
    ((mode, balance_usd),) = [(one["mode"], one["balance_usd"]) for one in (
        await running.get("/operator/v1/money"))["data"]]
    assert (mode, balance_usd) == ("prepaid", "1000")


async def test_the_key_also_reads_its_teams_usage(running: Running) -> None:
    key = await provide(running)
    async with httpx.AsyncClient(trust_env=False, headers={"authorization": f"Bearer {key}"}) as client:
        assert (await client.get(f"{running.url}/api/v1/teams/{TEAM}/usage")).status_code == 200


async def test_a_key_that_was_revoked_is_replaced(running: Running) -> None:
    before = await provide(running)
    key_id = running.layout.read_secrets().api_key_id
    async with httpx.AsyncClient(trust_env=False, headers={"authorization": f"Bearer {running.token}"}) as client:
        (await client.delete(f"{running.url}/operator/v1/keys/{key_id}")).raise_for_status()
    assert await provide(running) != before


async def test_a_key_whose_secret_was_lost_is_replaced(running: Running) -> None:
    before = await provide(running)
    secrets = running.layout.read_secrets()
    running.layout.write_secrets(secrets.model_copy(update={"api_key": "", "api_key_id": ""}))
    assert await provide(running) != before


async def test_a_datacenter_can_be_added_later(running: Running) -> None:
    await provide(running)
    await provide(running, replace(SHAPE, datacenter_count=3))
    assert len((await running.get("/operator/v1/topology"))["datacenters"]) == 3
    assert processes.enrolment_file(running.layout.agent("ap-south-1")).exists()


async def test_every_machine_gets_a_private_token_of_its_own(running: Running) -> None:
    await provide(running)
    layout = running.layout
    files = [processes.enrolment_file(place) for place in (
        layout.agent("us-east-1"), layout.agent("eu-north-1"), layout.edge(0))]  # fmt: skip
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert len({file.read_text() for file in files}) == 3


async def test_a_refusal_is_one_line_with_the_reason(running: Running) -> None:
    async with OperatorApi(running.url, "oper_meridian_local_wrong") as api:
        with pytest.raises(StackRefused, match=r"PUT /operator/v1/topology \(HTTP 401: "):
            await api.declare(SHAPE)


async def test_nobody_there_is_one_line() -> None:
    async with OperatorApi(f"http://{HOST}:{free_port()}", "oper_meridian_local_x") as api:
        with pytest.raises(StackRefused, match="ConnectError"):
            await api.status()


async def test_a_bootstrap_that_fails_is_one_line_with_its_last_words(tmp_path: Path) -> None:
    spec = ProcessSpec("bootstrap", ("/bin/sh", "-c", "echo no database >&2; exit 1"), {"PATH": os.defpath},
                       tmp_path / "bootstrap.log")  # fmt: skip
    with pytest.raises(StackRefused, match="'meridian bootstrap' failed: no database"):
        await asyncio.to_thread(provision.bootstrap, spec)
