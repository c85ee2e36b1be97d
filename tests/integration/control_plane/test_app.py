"""A replica's life: it migrates, says when it is ready, and outlives its database's absence."""

import asyncio
from pathlib import Path

import migrations
from control_plane.contracts.version import RELEASE
from tests.integration.control_plane.gate import gated
from tests.integration.control_plane.replica import Replica, running_replica


async def test_a_replica_migrates_an_empty_database_and_is_ready(empty_database_url: str, tmp_path: Path) -> None:
    async with running_replica(empty_database_url, tmp_path) as replica:
        assert (await replica.client.get("/readyz")).json() == {"status": "ready", "release": RELEASE}
    await migrations.check(empty_database_url)


async def test_replicas_that_start_at_once_share_one_signing_key(empty_database_url: str, tmp_path: Path) -> None:
    async with running_replica(empty_database_url, tmp_path) as one, \
            running_replica(empty_database_url, tmp_path) as other:
        assert one.context.signing_key.public.key_id == other.context.signing_key.public.key_id


async def test_metrics_are_prometheus_text(replica: Replica) -> None:
    await replica.client.get("/operator/v1/teams")
    answer = await replica.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "meridian_control_plane_requests_total" in answer.text


async def test_the_api_describes_itself(replica: Replica) -> None:
    paths = (await replica.client.get("/openapi.json")).json()["paths"]
    assert {"/enrol/v1", "/operator/v1/usage", "/api/v1/teams/{team_id}/usage"} <= set(paths)


async def test_without_its_database_a_replica_lives_refuses_clearly_and_recovers(
        database_url: str, tmp_path: Path) -> None:
    async with gated(database_url) as (gate, url), running_replica(url, tmp_path) as replica:
        headers = await replica.operator()
        await gate.close()
        alive = await replica.client.get("/healthz")
        ready = await replica.client.get("/readyz")
        refused = await replica.client.get("/operator/v1/teams", headers=headers)
        assert (alive.status_code, ready.status_code, refused.status_code) == (200, 503, 503)
        assert refused.json()["code"] == "database_away"
        await gate.open()
        assert (await replica.client.get("/operator/v1/teams", headers=headers)).status_code == 200
        async with asyncio.timeout(30):
            await replica.context.wakeups.listening.wait()


async def test_a_replica_waits_for_a_database_that_starts_later(empty_database_url: str, tmp_path: Path) -> None:
    async with gated(empty_database_url) as (gate, url):
        await gate.close()
        opening = asyncio.get_running_loop().call_later(0.5, lambda: asyncio.ensure_future(gate.open()))
        async with running_replica(url, tmp_path) as replica:
            assert (await replica.client.get("/readyz")).status_code == 200
        opening.cancel()
