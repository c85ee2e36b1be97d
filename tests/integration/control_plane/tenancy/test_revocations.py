"""The revocation stream: every edge sees each revocation, in commit order, soon."""

import asyncio

from control_plane.contracts import ids
from control_plane.contracts.keys import Revocation
from control_plane.tenancy import service as tenancy
from control_plane.tenancy.service import REVOCATIONS_CHANNEL
from tests.integration.control_plane.replica import Replica


async def revoke(replica: Replica, key_id: str) -> None:
    async with replica.context.db.begin() as session:
        await tenancy.revoke_key(session, key_id, "test")


async def stream(replica: Replica, after: int = 0, limit: int = 100) -> list[Revocation]:
    async with replica.context.db.begin() as session:
        return await tenancy.revocations_after(session, after, limit)


async def test_the_stream_names_digests_and_resumes_after_a_number(replica: Replica) -> None:
    team = await replica.team()
    keys = [await replica.key(team.id) for _ in range(3)]
    for key in keys:
        await revoke(replica, key.id)
    first = await stream(replica, limit=2)
    rest = await stream(replica, after=first[-1].seq)
    assert [row.digest for row in first + rest] == [ids.secret_digest(key.secret) for key in keys]


async def test_a_higher_number_is_never_visible_before_a_lower_one(replica: Replica) -> None:
    team = await replica.team()
    slow, quick = await replica.key(team.id), await replica.key(team.id)
    async with replica.context.db.begin() as session:
        await tenancy.revoke_key(session, slow.id, "test")
        await session.flush()
        racing = asyncio.create_task(revoke(replica, quick.id))
        await asyncio.sleep(0.2)
        assert await stream(replica) == []
        assert not racing.done()
    await racing
    assert [row.digest for row in await stream(replica)] == [ids.secret_digest(key.secret) for key in (slow, quick)]


async def test_many_revocations_at_once_have_numbers_without_gaps(replica: Replica) -> None:
    team = await replica.team()
    keys = [await replica.key(team.id) for _ in range(10)]
    await asyncio.gather(*(revoke(replica, key.id) for key in keys))
    assert [row.seq for row in await stream(replica)] == list(range(1, 11))


async def test_who_waits_for_revocations_is_woken(replica: Replica) -> None:
    key = await replica.key((await replica.team()).id)
    async with asyncio.timeout(5):
        await replica.context.wakeups.listening.wait()
    waiting = asyncio.create_task(replica.context.wakeups.wait(REVOCATIONS_CHANNEL, 30))
    await asyncio.sleep(0)
    await revoke(replica, key.id)
    assert await asyncio.wait_for(waiting, 5)
