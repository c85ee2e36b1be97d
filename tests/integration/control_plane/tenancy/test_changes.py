"""The stream of changed teams: every edge hears of each change, soon, and of many as one."""

import asyncio
from typing import Any

import pytest

from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.keys import TeamChange
from control_plane.tenancy.changes import changes_after, note_change
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST
from tests.integration.control_plane.tenancy.asking import Tenants


async def changes(tenants: Tenants, after: int = 0) -> list[TeamChange]:
    async with tenants.replica.context.db.begin() as session:
        return await changes_after(session, after, 100)


@pytest.mark.parametrize(("path", "body"), [
    ("limits", {"team": "acme", "concurrency": 1}), ("teams/acme/regions", {"regions": [EAST]}),
    ("keys/KEY/models", {"models": [MODEL]}), ("keys/KEY/regions", {"regions": [EAST]}),
    ("budgets/team/acme/daily", {"limit_usd": "1"}), ("budgets/key/KEY/daily", {"limit_usd": "1"})])
async def test_whatever_binds_a_key_changes_its_team(tenants: Tenants, path: str, body: dict[str, Any]) -> None:
    answer = await tenants.put(path.replace("KEY", tenants.key.id), **body)
    assert answer.status_code == 200, answer.text
    assert [change.team_id for change in await changes(tenants)] == [tenants.team.id]


async def test_a_change_is_told_once_and_a_later_one_again(tenants: Tenants) -> None:
    await tenants.put("limits", team="acme", concurrency=1)
    (first,) = (await tenants.sync()).changes
    assert (await tenants.sync(changes_after=first.seq)).changes == []
    await tenants.put("limits", team="acme", concurrency=2)
    (second,) = (await tenants.sync(changes_after=first.seq)).changes
    assert (second.team_id, second.seq > first.seq) == (first.team_id, True)


async def test_a_refused_change_is_none(tenants: Tenants) -> None:
    await tenants.put("limits", team="acme", model="no/model", concurrency=1)
    assert await changes(tenants) == []


async def test_a_waiting_poll_is_woken(tenants: Tenants) -> None:
    async with asyncio.timeout(5):
        await tenants.replica.context.wakeups.listening.wait()
    head = await tenants.sync()
    assert head.snapshot is not None
    waiting = asyncio.create_task(tenants.sync(
        wait_s=4.0, acked_lineage=1, acked_version=int(head.snapshot.body.split('"version":')[1].split(",")[0])))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await tenants.put("limits", team="acme", concurrency=1)
    assert (await asyncio.wait_for(waiting, 2)).changes


async def test_an_edge_that_knows_no_changes_is_told_none(tenants: Tenants) -> None:
    await tenants.put("limits", team="acme", concurrency=1)
    assert (await tenants.sync(changes_after=None)).changes == []


async def test_a_higher_number_is_never_visible_before_a_lower_one(tenants: Tenants) -> None:
    other, db = await tenants.replica.team("other"), tenants.replica.context.db
    async with db.begin() as session:
        await note_change(session, tenants.team.id)
        racing = asyncio.create_task(tenants.put("limits", team=other.id, concurrency=1))
        await asyncio.sleep(0.2)
        assert await changes(tenants) == []
        assert not racing.done()
    await racing
    assert [change.team_id for change in await changes(tenants)] == [tenants.team.id, other.id]


async def test_changes_and_revocations_at_once_do_not_block_each_other_for_ever(tenants: Tenants) -> None:
    keys = [await tenants.replica.key(tenants.team.id) for _ in range(6)]
    answers = await asyncio.gather(
        *(tenants.delete(f"keys/{key.id}") for key in keys[:3]),
        *(tenants.put(f"keys/{key.id}/models", models=[MODEL]) for key in keys),
        *(tenants.put("teams/acme/regions", regions=[EAST]) for _ in range(3)),
        *(tenants.post(f"keys/{key.id}/rotate", grace_s=60) for key in keys[3:]))
    assert {answer.status_code for answer in answers} <= {200, 201, 204, 404}


async def test_live_edges_are_those_that_polled_of_late(tenants: Tenants) -> None:
    assert (await tenants.sync()).live_edges == 1
    second = await tenants.replica.enrolled(IdentityKind.EDGE)
    assert (await tenants.sync(second)).live_edges == 2
    async with tenants.replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql(
            "UPDATE edge SET last_seen_at = now() - interval '1 minute' WHERE id = $1", (second.identity,))
    assert (await tenants.sync()).live_edges == 1
