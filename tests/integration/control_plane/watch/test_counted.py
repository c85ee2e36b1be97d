"""What replicas count as it happens: how late usage is, and how far machines' clocks are off."""

from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.edge_sync import EdgeSyncRequest
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.signing import SignedRequest
from control_plane.identity import repository
from tests.integration.control_plane.replica import Peer, Replica, running_replica
from tests.unit.control_plane.usage.frames import Maker, batch

LAG = "meridian_usage_lag_seconds"
OFFSET = "meridian_control_plane_machine_clock_offset_seconds"
SYNC = EdgeSyncRequest(boot_id="b", release="0.1.0", acked_lineage=0, acked_version=0, revocations_after=0,
                       open_requests={}, wait_s=0).model_dump_json().encode()


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


@pytest.fixture
async def edge(replica: Replica) -> Peer:
    return await replica.enrolled(IdentityKind.EDGE)


async def test_the_longest_wait_of_a_batch_is_noted_once(replica: Replica, edge: Peer) -> None:
    team = await replica.team()
    maker, now_s = Maker(team.id, (await replica.key(team.id)).id), replica.context.clock.time_s()
    await replica.price()
    body = batch(maker.record(now_s - 1), maker.record(now_s - 100, duration_ms=10_000.0), maker.record(now_s - 5))
    counted, total_s = value(f"{LAG}_count") or 0, value(f"{LAG}_sum") or 0
    assert (await replica.signed(edge, "/edge/v1/usage", body)).status_code == 200
    assert (value(f"{LAG}_count") or 0) == counted + 1
    assert 89 < (value(f"{LAG}_sum") or 0) - total_s < 95


async def test_a_repeat_is_no_lag(replica: Replica, edge: Peer) -> None:
    team = await replica.team()
    maker, now_s = Maker(team.id, (await replica.key(team.id)).id), replica.context.clock.time_s()
    await replica.price()
    body = batch(maker.record(now_s - 1))
    await replica.signed(edge, "/edge/v1/usage", body)
    counted = value(f"{LAG}_count")
    assert (await replica.signed(edge, "/edge/v1/usage", body)).status_code == 200
    assert value(f"{LAG}_count") == counted


async def test_a_clock_that_is_ahead_is_told_by_how_much(replica: Replica, edge: Peer) -> None:
    ahead = ManualClock(time_s=replica.context.clock.time_s() + 30)
    headers = SignedRequest("POST", "/edge/v1/sync", SYNC).sign(edge.identity, edge.key, ahead)
    assert (await replica.client.post("/edge/v1/sync", content=SYNC, headers=headers)).status_code == 200
    assert 25 < (value(OFFSET, kind="edge", identity=edge.identity) or 0) <= 30


async def test_who_is_forged_has_no_clock(replica: Replica, edge: Peer) -> None:
    stranger = Peer(edge.identity, (await replica.enrolled(IdentityKind.EDGE)).key)
    before = value(OFFSET, kind="edge", identity=edge.identity)
    assert (await replica.signed(stranger, "/edge/v1/sync", SYNC)).status_code == 401
    assert value(OFFSET, kind="edge", identity=edge.identity) == before


async def test_a_revoked_machine_is_forgotten(database_url: str, tmp_path: Path) -> None:
    async with running_replica(database_url, tmp_path, identity_cache_s=0) as replica:
        edge = await replica.enrolled(IdentityKind.EDGE)
        await replica.signed(edge, "/edge/v1/sync", SYNC)
        assert value(OFFSET, kind="edge", identity=edge.identity) is not None
        async with replica.context.db.begin() as session:
            await repository.revoke_identity(session, edge.identity)
        assert (await replica.signed(edge, "/edge/v1/sync", SYNC)).status_code == 401
        assert value(OFFSET, kind="edge", identity=edge.identity) is None
