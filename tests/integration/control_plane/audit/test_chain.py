"""The chain of the audit log on a real database: gapless whoever appends, and whatever an owner alters is found."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from control_plane.audit import service as audit
from control_plane.audit import tasks
from control_plane.audit.chain import Tip
from control_plane.contracts.audit import ChainFault, ChainView
from control_plane.contracts.operator import OperatorScope
from control_plane.routing import repository as routing
from tests.integration.control_plane.replica import Replica, running_replica

RACERS = 50


async def note(replica: Replica, count: int) -> None:
    for index in range(count):
        async with replica.context.db.begin() as session:
            audit.record(session, actor="operator:olga", action="test.note", target=f"thing:{index}", reason="why",
                         before={"weight": 1.0, "names": ["é", "\U0001f600"]}, after={"share": 0.1, "big": 1e22})


async def walked(replica: Replica, expected_head: str = "") -> ChainView:
    """As `verified`, and without a new token: that would be an event, too."""
    return await audit.verify(replica.context.db, Tip(), 1_000, bytes.fromhex(expected_head) or None)


async def verified(replica: Replica, **params: str) -> ChainView:
    answer = await replica.client.get("/operator/v1/audit/verify", params=params,
                                      headers=await replica.operator(OperatorScope.READ))
    assert answer.status_code == 200, answer.text
    return ChainView.model_validate_json(answer.content)


async def tamper(replica: Replica, *statements: str) -> None:
    """What somebody who owns the database can do."""
    async with replica.context.db.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE audit_event DISABLE TRIGGER USER"))
        for statement in statements:
            await connection.execute(text(statement))
        await connection.execute(text("ALTER TABLE audit_event ENABLE TRIGGER USER"))


async def fault_after(replica: Replica, *statements: str) -> ChainFault:
    await note(replica, 6)
    await tamper(replica, *statements)
    view = await walked(replica)
    assert view.fault is not None
    return view.fault


async def test_a_log_as_it_was_written_is_told_with_its_head(replica: Replica) -> None:
    await note(replica, 6)
    headers = await replica.operator()
    view = await verified(replica)
    assert (view.is_complete, view.fault) == (True, None)
    events = (await replica.client.get("/operator/v1/audit", headers=headers)).json()["data"]
    assert view.hash in {event["hash"] for event in events}


@pytest.mark.parametrize("change", [
    "id = 'audit_forged'", "at = at + interval '1 microsecond'", "actor = 'operator:mallory'", "action = 'test.other'",
    "target = 'thing:9'", "reason = NULL", "reason = 'another'", "before = NULL", "before = '{\"weight\": 2}'",
    "after = NULL", "after = after || '{\"share\": 0.2}'", "prev_hash = decode(repeat('00', 32), 'hex')",
    "hash = decode(repeat('00', 32), 'hex')"])
async def test_a_change_of_any_column_is_found(replica: Replica, change: str) -> None:
    fault = await fault_after(replica, f"UPDATE audit_event SET {change} WHERE seq = 3")  # noqa: S608
    assert fault.seq == 3


async def test_a_changed_number_is_found(replica: Replica) -> None:
    fault = await fault_after(replica, "UPDATE audit_event SET seq = 1000 WHERE seq = 3")
    assert (fault.seq, "event 3 is gone" in fault.problem) == (3, True)


async def test_a_deleted_event_is_found(replica: Replica) -> None:
    fault = await fault_after(replica, "DELETE FROM audit_event WHERE seq = 3")
    assert (fault.seq, fault.problem) == (3, "event 3 is gone")


async def test_a_deletion_that_is_closed_up_is_found(replica: Replica) -> None:
    fault = await fault_after(replica, "DELETE FROM audit_event WHERE seq = 3",
                              "UPDATE audit_event SET seq = -seq WHERE seq > 3",
                              "UPDATE audit_event SET seq = -seq - 1 WHERE seq < 0",
                              "UPDATE audit_head SET seq = seq - 1")
    assert (fault.seq, "does not follow" in fault.problem) == (3, True)


async def test_two_events_that_changed_places_are_found(replica: Replica) -> None:
    fault = await fault_after(replica, "UPDATE audit_event SET seq = -4 WHERE seq = 3",
                              "UPDATE audit_event SET seq = 3 WHERE seq = 4",
                              "UPDATE audit_event SET seq = 4 WHERE seq = -4")
    assert fault.seq == 3


async def test_an_event_that_was_put_in_is_found(replica: Replica) -> None:
    fault = await fault_after(
        replica, "INSERT INTO audit_event (id, actor, action, target, seq, prev_hash, hash) SELECT 'audit_forged', "
        "'operator:olga', 'test.note', 'thing:1', max(seq) + 1, ''::bytea, ''::bytea FROM audit_event",
        "UPDATE audit_head SET seq = seq + 1")
    assert fault.event_id == "audit_forged"


async def test_a_cut_tail_is_found(replica: Replica) -> None:
    fault = await fault_after(replica, "DELETE FROM audit_event WHERE seq > 4")
    assert (fault.seq, "the log ends before its head" in fault.problem) == (5, True)


async def test_a_tail_that_was_cut_with_its_head_is_found_by_the_noted_head(replica: Replica) -> None:
    await note(replica, 6)
    noted = (await walked(replica)).hash
    assert (await verified(replica, expect_head=noted)).fault is None
    await tamper(replica, "DELETE FROM audit_event WHERE seq > 4",
                 "UPDATE audit_head SET (seq, hash) = (SELECT seq, hash FROM audit_event WHERE seq = 4)")
    assert (await walked(replica)).fault is None
    fault = (await walked(replica, noted)).fault
    assert fault is not None
    assert noted in fault.problem


async def test_a_long_log_is_walked_in_stretches(replica: Replica) -> None:
    await note(replica, 5)
    first = await audit.verify(replica.context.db, Tip(), 3)
    assert (first.seq, first.is_complete) == (3, False)
    rest = await audit.verify(replica.context.db, Tip(first.seq, bytes.fromhex(first.hash)), 3)
    assert (rest.seq, rest.is_complete, rest.fault) == (5, True, None)


async def test_an_event_that_is_altered_between_two_stretches_is_found(replica: Replica) -> None:
    await note(replica, 5)
    first = await audit.verify(replica.context.db, Tip(), 3)
    rest = await audit.verify(replica.context.db, Tip(first.seq, bytes(32)), 3)
    assert rest.fault is not None


async def race(replica: Replica, index: int) -> None:
    """A transaction that notes something and locks the routing head, now in this order, now in the other."""
    async def work(session: Any) -> None:
        if index % 2:
            audit.record(session, actor="operator:olga", action="test.race", target=f"thing:{index}")
        await routing.lock_head(session)
        audit.record(session, actor="operator:olga", action="test.race", target=f"thing:{index}")

    async with replica.context.db.begin() as session:
        await work(session)


async def test_fifty_transactions_at_once_neither_lock_each_other_out_nor_leave_a_gap(replica: Replica) -> None:
    await asyncio.gather(*(race(replica, index) for index in range(RACERS)))
    view = await verified(replica)
    assert view.fault is None
    async with replica.context.db.begin() as session:
        count = (await session.execute(text(
            "SELECT count(*) FROM audit_event WHERE action = 'test.race'"))).scalar_one()
    assert count == RACERS + RACERS // 2


async def test_an_event_that_cannot_be_kept_undoes_its_change(replica: Replica) -> None:
    async def change() -> None:
        async with replica.context.db.begin() as session:
            await session.execute(text("INSERT INTO region (id) VALUES ('nowhere')"))
            audit.record(session, actor="operator:olga", action="test.note", target="thing:1", after={"a": "\x00"})

    with pytest.raises(DBAPIError):
        await change()
    async with replica.context.db.begin() as session:
        assert (await session.execute(text("SELECT count(*) FROM region WHERE id = 'nowhere'"))).scalar_one() == 0


async def test_the_nightly_task_tells_by_metric_and_mends_nothing(replica: Replica) -> None:
    def told() -> float | None:
        return REGISTRY.get_sample_value("meridian_audit_chain_ok", {"log": "audit"})

    await note(replica, 3)
    await tasks.verify_chain(replica.context.db)
    assert told() == 1
    await tamper(replica, "DELETE FROM audit_event WHERE seq = 2")
    await tasks.verify_chain(replica.context.db)
    await tasks.verify_chain(replica.context.db)
    assert told() == 0


async def test_two_replicas_append_to_one_chain(database_url: str, tmp_path: Path) -> None:
    async with (running_replica(database_url, tmp_path / "a") as one,
                running_replica(database_url, tmp_path / "b") as two):
        await asyncio.gather(*(note(replica, 10) for replica in (one, two)))
        assert (await verified(one)).fault is None


async def test_verifying_needs_no_more_than_a_reader(replica: Replica) -> None:
    assert (await replica.client.get("/operator/v1/audit/verify")).status_code == 401


async def test_a_hash_that_is_none_is_refused(replica: Replica) -> None:
    headers = await replica.operator(OperatorScope.READ)
    answer = await replica.client.get("/operator/v1/audit/verify?expect_head=xyz", headers=headers)
    assert answer.status_code == 422


async def test_what_was_before_and_after_is_in_the_list(replica: Replica) -> None:
    await note(replica, 1)
    answer = await replica.client.get("/operator/v1/audit?target=thing:0", headers=await replica.operator())
    (event,) = answer.json()["data"]
    assert (event["before"]["weight"], event["after"]["share"], len(event["hash"])) == (1, 0.1, 64)
