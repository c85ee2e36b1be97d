"""The checker finds what it is there to find: each fault that it could miss is put into a made-up run once."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.chaos import checker
from tests.chaos.checker import Property
from tests.chaos.evidence import Event, Evidence, Operation, Record, Spent
from tests.chaos.history import Fault, History, Try, Verdict

PORTS = [9000, 9001]
COST = Decimal("0.001")


def one_try(number: int = 1, **changes: Any) -> Try:
    values: dict[str, Any] = {
        "load": 0, "number": number, "attempt": 1, "edge": 0, "team": "team", "way": "chat", "wanted": 4,
        "began_s": 100.0 + number, "ended_s": 100.5 + number, "verdict": Verdict.FINISHED, "retry": False, "last": True,
        "status": 200, "request_id": f"id{number}", "tokens": 4}
    return Try(**values | changes)


def record(number: int = 1, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "request_id": f"id{number}", "team": "team", "outcome": "completed", "tokens": 4, "cost_usd": COST,
        "opened_s": 100.0 + number, "edge": "edge_1", "resumes": 0, "attempts": [("us-east-1", False)]}
    return Record(**values | changes)


def history(*tries: Try, faults: tuple[Fault, ...] = ()) -> History:
    return History(list(tries), [], list(faults), [])


def evidence(*records: Record, **changes: Any) -> Evidence:
    total = sum((one.cost_usd for one in records), Decimal(0))
    values: dict[str, Any] = {
        "records": list(records), "spent": [Spent("team", "team", "lifetime", total)], "rollup_requests": 0,
        "open_requests": 0, "quarantine": [], "operations": [], "audit": []}
    return Evidence(**values | changes)


def broken(seen: History, found: Evidence) -> list[str]:
    """The names of the properties that do not hold."""
    windows = checker.windows_of(seen.faults, PORTS)
    properties = [*checker.clients(seen, windows), *checker.usage(seen, found, windows), *checker.operations(found),
                  *checker.rest(found)]
    return [one.name for one in checker.failures(properties)]


def test_a_run_without_a_fault_holds_every_property() -> None:
    assert broken(history(one_try(1), one_try(2)), evidence(record(1), record(2))) == []


@pytest.mark.parametrize(("seen", "found", "named"), [
    (history(one_try()), evidence(), "usage records lost (finished, no record)"),
    (history(one_try()), evidence(record(outcome="edge_lost", tokens=0)), "usage records lost (finished, no record)"),
    (history(one_try()), evidence(record(), record()), "usage records doubled"),
    (history(one_try(tokens=4)), evidence(record(tokens=5)), "finished, and billed otherwise than delivered"),
    (history(one_try()), evidence(record(), record(2)), "records of requests that clients do not know"),
    (history(one_try()), evidence(record(), open_requests=1), "openings nobody settled"),
    (history(one_try()), evidence(record(), quarantine=["contradiction"]), "frames in quarantine"),
    (history(one_try()), evidence(record(), rollup_requests=2), "requests in hourly sums"),
    (history(one_try()), evidence(record(), spent=[Spent("team", "team", "lifetime", 2 * COST)]),
     "teams whose booked spend differs from their records"),
    (history(one_try()), evidence(record(), unconverged="an edge is behind"), "edges at the head, agents as desired"),
    (history(one_try()), evidence(record(), operations=[Operation("op", "drain", "running")],
                                  audit=[Event("a", "drain.create", "op")]), "operations stuck"),
    (history(one_try()), evidence(record(), operations=[Operation("op", "drain", "failed")]),
     "operations without an audit event"),
    (history(one_try()), evidence(record(), audit=[Event("a", "x", None), Event("a", "y", None)]),
     "audit events with one id"),
    (history(one_try()), evidence(record(), audit_verified=False), "the audit log's chain"),
])
def test_what_the_control_plane_got_wrong_is_named(seen: History, found: Evidence, named: str) -> None:
    assert named in broken(seen, found)


def test_an_error_that_may_not_be_retried_is_named() -> None:
    refused = one_try(verdict=Verdict.REFUSED, retry=False, status=400)
    assert "errors that no client may retry" in broken(history(refused), evidence())


def test_a_request_that_no_retry_helped_is_named() -> None:
    cut = one_try(verdict=Verdict.CUT, retry=True, tokens=0)
    assert "requests given up after every retry" in broken(history(cut), evidence(record(tokens=0)))


def test_an_answer_cut_by_an_edge_that_died_is_excused_and_by_another_is_not() -> None:
    cut = one_try(verdict=Verdict.CUT, retry=True, last=False, tokens=2, request_id="id1")
    again = one_try(1, attempt=2, request_id="id9", began_s=102.0, ended_s=102.5)
    found = evidence(record(1, outcome="edge_lost", tokens=0, cost_usd=Decimal(0)), record(9))
    died = (Fault("kill", "edge 9000", 101.2), Fault("back", "edge 9000", 104.0))
    assert broken(history(cut, again, faults=died), found) == []
    other = tuple(msgspec.structs.replace(one, victim="edge 9001") for one in died)
    assert broken(history(cut, again, faults=other), found) == ["requests broken by an edge that lived"]


def test_what_broke_off_for_no_reason_is_not_billed_beyond_what_was_delivered() -> None:
    broken_off = one_try(verdict=Verdict.REFUSED, retry=True, status=200, tokens=2)
    named = broken(history(broken_off), evidence(record(outcome="upstream_lost", tokens=3)))
    assert "broken off by no fault, and billed more than delivered" in named


@pytest.mark.parametrize("status", [200, 429, 502, 503])
def test_being_turned_away_is_a_fault_only_where_it_is_said_to_be(status: int) -> None:
    seen = history(one_try(verdict=Verdict.REFUSED, retry=True, status=status, last=False, tokens=0),
                   one_try(attempt=2))
    strict, lenient = (checker.failures(checker.clients(seen, [], strict)) for strict in (True, False))
    assert [one.name for one in strict] == ["requests turned away for a moment by an edge that lived"]
    assert lenient == []


def test_a_record_without_a_client_is_allowed_for_each_answer_that_had_no_head() -> None:
    headless = one_try(2, verdict=Verdict.CUT, retry=True, last=False, request_id="", status=0, tokens=0)
    died = (Fault("kill", "edge 9000", 102.2), Fault("back", "edge 9000", 104.0))
    found = evidence(record(1), record(7, outcome="edge_lost", tokens=0, cost_usd=Decimal(0)))
    assert broken(history(one_try(1), headless, one_try(2, attempt=2, request_id="id1"), faults=died), found) == []


def test_an_edge_that_never_came_back_is_excused_to_the_end() -> None:
    [window] = checker.windows_of([Fault("kill", "edge 9001", 10.0)], PORTS)
    assert (window.edge, window.until_s) == (1, checker.NEVER_S)


def test_too_little_load_proves_nothing() -> None:
    slow = history(*(one_try(number, began_s=float(number)) for number in range(10)))
    assert [one.name for one in checker.failures(checker.traffic(slow, 50.0))] == ["requests a second"]
    assert checker.failures(checker.traffic(slow, 0.5)) == []


def test_what_has_no_bound_only_informs() -> None:
    assert checker.failures([Property("requests", "7")]) == []
