"""Publishing under concurrency: versions follow facts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import select, text

from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import SignedSnapshot, Snapshot
from control_plane.routing import publisher
from control_plane.routing.models import RoutingSnapshot
from tests.integration.control_plane.replica import Replica, running_replica
from tests.integration.control_plane.simulated import EAST, WEST, declare, document


@pytest.fixture
async def replica(database_url: str, tmp_path: Path) -> AsyncIterator[Replica]:
    async with running_replica(database_url, tmp_path) as running:
        await declare(running, await running.operator(), document())
        yield running


async def publish(replica: Replica, cause: str = "test", key: SigningKey | None = None) -> tuple[int, int]:
    async with replica.context.db.begin() as session:
        return await publisher.publish(session, key or replica.context.signing_key, cause)


async def snapshots(replica: Replica) -> list[Snapshot]:
    async with replica.context.db.begin() as session:
        rows = (await session.execute(select(RoutingSnapshot).order_by(RoutingSnapshot.version))).scalars().all()
    keys = [replica.context.signing_key.public]
    return [SignedSnapshot(key_id=row.key_id, signature=row.signature, body=row.body).open(keys) for row in rows]


async def reweigh_and_publish(replica: Replica, datacenter: str, weight: int) -> None:
    async with replica.context.db.begin() as session:
        await session.execute(text("UPDATE datacenter SET weight = :weight WHERE id = :id"),
                              {"weight": weight, "id": datacenter})
        await publisher.publish(session, replica.context.signing_key, "test")


async def test_nothing_new_is_no_new_version(replica: Replica) -> None:
    assert await publish(replica) == await publish(replica) == (1, 1)


async def test_another_signing_key_signs_the_same_content_anew(replica: Replica) -> None:
    assert await publish(replica, key=SigningKey.generate()) == (1, 2)


async def test_many_at_once_number_without_gaps_and_the_last_has_every_fact(replica: Replica) -> None:
    await asyncio.gather(*[reweigh_and_publish(replica, place, weight)
                           for weight in range(1, 13) for place in (WEST, EAST)])
    made = await snapshots(replica)
    assert [snapshot.version for snapshot in made] == list(range(1, len(made) + 1))
    async with replica.context.db.begin() as session:
        rows = (await session.execute(text("SELECT id, weight FROM datacenter"))).all()
        stored = {row.id: row.weight for row in rows}
    assert {place.id: place.weight for place in made[-1].datacenters} == stored


async def test_a_later_version_never_holds_an_older_fact(replica: Replica) -> None:
    for weight in range(1, 6):
        await asyncio.gather(reweigh_and_publish(replica, WEST, weight), reweigh_and_publish(replica, EAST, weight))
    for place in (WEST, EAST):
        weights = [one.weight for snapshot in (await snapshots(replica))[1:] for one in snapshot.datacenters
                   if one.id == place]
        assert weights[1:] == sorted(weights[1:])


async def test_a_change_that_is_rolled_back_leaves_no_version(replica: Replica) -> None:
    async def fail_after_publishing() -> None:
        async with replica.context.db.begin() as session:
            await session.execute(text("UPDATE datacenter SET weight = 9"))
            assert await publisher.publish(session, replica.context.signing_key, "test") == (1, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_after_publishing()
    assert await publish(replica) == (1, 1)


async def test_only_the_newest_are_kept(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "KEPT_SNAPSHOTS", 3)
    for weight in range(1, 8):
        await reweigh_and_publish(replica, WEST, weight)
    assert [snapshot.version for snapshot in await snapshots(replica)] == [6, 7, 8]
