"""The audit log: same transaction, paged, frozen."""

import pytest
from sqlalchemy.exc import DBAPIError

from control_plane.audit import service as audit
from control_plane.db import sqlstate
from tests.integration.control_plane.replica import Replica


async def note(replica: Replica, count: int) -> None:
    async with replica.context.db.begin() as session:
        for index in range(count):
            audit.record(session, actor="operator:olga", action="test.note", target=f"thing:{index}", reason="why")


async def test_an_event_is_kept_with_its_change(replica: Replica) -> None:
    team = await replica.team("acme")
    answer = await replica.client.get(
        "/operator/v1/audit", params={"target": f"team:{team.id}"}, headers=await replica.operator())
    (event,) = answer.json()["data"]
    assert (event["actor"], event["action"]) == ("test", "team.create")


async def test_an_event_disappears_with_a_change_that_failed(replica: Replica) -> None:
    async def fail() -> None:
        async with replica.context.db.begin() as session:
            audit.record(session, actor="operator:olga", action="test.note", target="thing:1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    answer = await replica.client.get("/operator/v1/audit?target=thing:1", headers=await replica.operator())
    assert answer.json() == {"data": [], "next_cursor": None}


async def test_pages_show_each_event_once_the_newest_first(replica: Replica) -> None:
    for _ in range(5):
        await note(replica, 1)
    headers, seen, cursor = await replica.operator(), [], None
    while True:
        params = {"target": "thing:0", "limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await replica.client.get("/operator/v1/audit", params=params, headers=headers)).json()
        seen += [event["id"] for event in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == 5
    assert seen == sorted(set(seen), reverse=True)


@pytest.mark.parametrize("statement", [
    "UPDATE audit_event SET actor = 'nobody'", "DELETE FROM audit_event", "TRUNCATE audit_event"])
async def test_the_database_refuses_to_change_an_event(replica: Replica, statement: str) -> None:
    await note(replica, 1)
    with pytest.raises(DBAPIError) as refused:
        async with replica.context.db.engine.begin() as connection:
            await connection.exec_driver_sql(statement)
    assert sqlstate(refused.value) == "42501"
