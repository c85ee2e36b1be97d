"""Seeing, following and cancelling operations."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from control_plane.cli.operations import list_sheet
from control_plane.contracts.operations import OperationKind, OperationState, OperationView
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls without a pause worth mentioning: the server moves on each poll, not with time."""
    monkeypatch.setattr("control_plane.cli.waiting.POLL_S", 0.001)


@pytest.fixture
def started(meridian: Meridian) -> Meridian:
    """The command line, after a drain was ordered."""
    meridian("drain", "us-east-1", "--reason", "new racks")
    return meridian


def test_without_operations_the_list_says_so(meridian: Meridian) -> None:
    assert meridian("operations", "list").out == "No operations yet.\n"


def test_a_list_of_one_state_says_that_none_is_in_it(started: Meridian) -> None:
    assert started("operations", "list", "--only", "failed").out == "No operation is failed.\n"


def test_a_long_subject_gives_way_before_what_a_person_copies() -> None:
    subject = "30% of sim/glm-5.3 from us-east-1 to ap-south-1"
    moment = datetime(2026, 11, 30, 12, tzinfo=UTC)
    operation = OperationView(
        id="op_" + "0" * 32, kind=OperationKind.SHIFT, subject=subject, datacenter=None,
        state=OperationState.ROLLED_BACK, reason="lighten", requested_by="operator:one", automatic=False, forced=False,
        created_at=moment, finished_at=moment, deadline_at=moment, error=None, paused=None, steps=[])
    written = io.StringIO()
    Console(width=80, file=written).print(list_sheet([operation]).table())
    shown = written.getvalue()
    assert operation.id in shown
    assert "rolled_back" in shown


def test_the_list_names_each_operation(started: Meridian) -> None:
    head, row = started("operations", "list").out.splitlines()
    assert head.split() == ["OPERATION", "KIND", "OF", "STATE", "ORDERED"]
    assert row.split()[:4] == ["op_1", "drain", "us-east-1", "planned"]


def test_the_list_can_be_narrowed_to_a_state(started: Meridian) -> None:
    assert started("operations", "list", "--only", "running", "-o", "json").json == {"data": []}
    assert len(started("operations", "list", "--only", "planned", "-o", "json").json["data"]) == 1


def test_no_more_are_listed_than_asked(started: Meridian) -> None:
    started("drain", "us-east-1", "--reason", "again")
    assert len(started("operations", "list", "-n", "1", "-o", "json").json["data"]) == 1


def test_an_operation_is_shown_with_its_reason_and_steps(started: Meridian) -> None:
    started("operations", "show", "op_1")
    out = started("operations", "show", "op_1").out
    assert "why        new racks" in out
    assert "✓  move traffic by degrees" in out
    assert "·  mark it drained" in out


def test_an_operation_in_json_is_the_operation(started: Meridian) -> None:
    assert started("operations", "show", "op_1", "-o", "json").json["reason"] == "new racks"


def test_an_unknown_operation_is_said_so(meridian: Meridian) -> None:
    ran = meridian("operations", "show", "op_9")
    assert (ran.code, ran.err) == (1, "error: there is no operation op_9\n")


def test_watching_ends_with_the_operation(started: Meridian) -> None:
    ran = started("operations", "watch", "op_1")
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == "drain of us-east-1 succeeded in 1m 15s  op_1"


def test_watching_what_fails_is_exit_code_five(started: Meridian, api: OperatorServer) -> None:
    api.ending = OperationState.FAILED
    assert started("operations", "watch", "op_1").code == 5


def test_watching_gives_up_after_the_timeout(started: Meridian, api: OperatorServer) -> None:
    api.stuck = True
    assert started("operations", "watch", "op_1", "--timeout", "0.01s").code == 4


def test_watching_in_json_prints_the_end_alone(started: Meridian) -> None:
    assert started("operations", "watch", "op_1", "-o", "json").json["state"] == "succeeded"


def test_cancelling_says_what_became_of_it(started: Meridian, api: OperatorServer) -> None:
    ran = started("operations", "cancel", "op_1")
    assert (ran.code, api.operations["op_1"].state) == (0, OperationState.CANCELLED)
    assert ran.out.startswith("drain of us-east-1 cancelled")


def test_cancelling_what_has_ended_is_denied(started: Meridian) -> None:
    started("operations", "watch", "op_1")
    ran = started("operations", "cancel", "op_1")
    assert (ran.code, ran.err) == (1, "error: op_1 has ended\n")


@pytest.mark.parametrize(("verb", "state", "said"), [
    ("pause", OperationState.PAUSED, "drain of us-east-1 paused: paused by operator:olga"),
    ("resume", OperationState.RUNNING, "drain of us-east-1 running"),
    ("rollback", OperationState.ROLLING_BACK, "drain of us-east-1 rolling_back")])
def test_an_operation_is_steered_and_said_to_be(started: Meridian, api: OperatorServer, verb: str,
                                                state: OperationState, said: str) -> None:
    ran = started("operations", verb, "op_1")
    assert (ran.code, api.operations["op_1"].state) == (0, state)
    assert ran.out.startswith(said)


def test_a_paused_operation_says_why_when_it_is_shown(started: Meridian) -> None:
    started("operations", "pause", "op_1")
    assert "paused     paused by operator:olga" in started("operations", "show", "op_1").out
