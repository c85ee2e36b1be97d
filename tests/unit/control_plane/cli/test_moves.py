"""Drain and restore: the plan first, one operation however often it is sent, and an exit code for each end."""

import io
import json
import re

import pytest

from control_plane.contracts.operations import Headroom, OperationAnswer, OperationState
from control_plane.contracts.problem import Problem
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer, Raw

LAST = Problem(code="unsafe_change", message="us-east-1 is the last healthy datacenter of sim/glm-5.3",
               rule="last_healthy_datacenter", numbers={"healthy": "1", "needed": "2"})
DRAIN = ("drain", "us-east-1", "--reason", "test")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls without a pause worth mentioning: the server moves on each poll, not with time."""
    monkeypatch.setattr("control_plane.cli.waiting.POLL_S", 0.001)


def orders(api: OperatorServer) -> list[dict[str, object]]:
    return [json.loads(call.body) for call in api.calls if call.method == "POST"]


def test_the_plan_is_shown_before_anything_is_done(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian(*DRAIN)
    assert ran.out.splitlines()[:7] == [
        "Plan: drain us-east-1  (now active)",
        "  open requests  14",
        "  sim/glm-5.3  then served by eu-north-1",
        "  1. move traffic by degrees",
        "  2. let open requests finish",
        "  3. mark it drained",
        "Started op_1",
    ]
    assert [order["dry_run"] for order in orders(api)] == [True, False]


def test_a_dry_run_changes_nothing(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian(*DRAIN, "--dry-run")
    assert ran.code == 0
    assert "Started" not in ran.out
    assert api.operations == {}


def test_a_dry_run_in_json_is_the_plan(meridian: Meridian) -> None:
    ran = meridian(*DRAIN, "--dry-run", "-o", "json")
    assert ran.json["plan"]["models"] == ["sim/glm-5.3"]
    assert ran.json["operation"] is None


def test_what_was_typed_is_what_is_ordered(meridian: Meridian, api: OperatorServer) -> None:
    meridian("drain", "us-east-1", "-r", "new racks", "--deadline", "90s", "--force")
    assert {name: value for name, value in orders(api)[-1].items() if value is not None} == {
        "kind": "drain", "datacenter": "us-east-1", "reason": "new racks", "deadline_s": 90.0, "force": True,
        "override_reservations": False, "dry_run": False}


class TestFailover:
    FAILOVER = ("failover", "us-east-1", "--reason", "fire")

    def test_it_is_graceful_and_short_unless_said_otherwise(self, meridian: Meridian, api: OperatorServer) -> None:
        assert meridian(*self.FAILOVER).code == 0
        assert (orders(api)[-1]["mode"], orders(api)[-1]["deadline_s"]) == ("graceful", 30.0)

    def test_it_names_who_takes_its_traffic(self, meridian: Meridian, api: OperatorServer) -> None:
        meridian(*self.FAILOVER, "--to", "eu-north-1, us-west-2")
        assert orders(api)[-1]["onto"] == ["eu-north-1", "us-west-2"]

    def test_it_cannot_go_onto_itself(self, meridian: Meridian, api: OperatorServer) -> None:
        ran = meridian(*self.FAILOVER, "--to", "us-east-1")
        assert ran.code == 2
        assert "onto itself" in ran.err

    def test_hard_mode_is_said(self, meridian: Meridian, api: OperatorServer) -> None:
        meridian(*self.FAILOVER, "--mode", "hard")
        assert orders(api)[-1]["mode"] == "hard"

    @pytest.mark.parametrize(("typed", "ordered"), [("us-east-1\n", 2), ("y\n", 1)])
    def test_hard_mode_asks_a_person_to_type_the_name(
            self, meridian: Meridian, api: OperatorServer, monkeypatch: pytest.MonkeyPatch, typed: str,
            ordered: int) -> None:
        monkeypatch.setattr("control_plane.cli.invocation.Invocation.asks", True)
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert meridian(*self.FAILOVER, "--mode", "hard").code == (0 if ordered == 2 else 1)
        assert len(orders(api)) == ordered

    def test_what_was_done_already_is_said_so(self, meridian: Meridian, api: OperatorServer) -> None:
        plan = meridian(*self.FAILOVER, "--dry-run", "-o", "json").out
        meridian(*self.FAILOVER, "--wait")
        done = OperationAnswer(plan=OperationAnswer.model_validate_json(plan).plan, operation=api.operations["op_1"])
        api.scripted.extend([Raw(200, plan.encode()), Raw(200, done.model_dump_json().encode())])
        ran = meridian(*self.FAILOVER, "--wait")
        assert (ran.code, ran.out.splitlines()[-1]) == (0, "Nothing to do: op_1 did it already, succeeded")


class TestPlan:
    def test_it_says_what_is_there_and_what_then_holds(self, meridian: Meridian, api: OperatorServer) -> None:
        api.plan = {"open_streams": 9, "sessions": 1200, "expected_s": {"ramp": 20.0}, "after": {
            "sim/glm-5.3": Headroom(ready=48, peak=30, reserved=8, headroom=12)}}
        out = meridian(*DRAIN, "--dry-run").out
        assert "  open requests  14, 9 of them streams, 1,200 sessions\n" in out
        assert "    holds 48 requests at once then; peak 30, reserved 8, headroom 12\n" in out
        assert "  1. move traffic by degrees  about 20s\n" in out

    def test_what_nobody_knows_is_a_dash(self, meridian: Meridian, api: OperatorServer) -> None:
        api.plan = {"after": {"sim/glm-5.3": Headroom(ready=None, peak=None, reserved=0, headroom=None)}}
        assert "holds \N{EN DASH} requests at once" in meridian(*DRAIN, "--dry-run").out

    def test_reserved_units_at_risk_and_warnings_are_told(self, meridian: Meridian, api: OperatorServer) -> None:
        api.plan = {"reserved_at_risk": {"sim/glm-5.3": 7}, "warnings": ["waits 3.2 s first"]}
        out = meridian(*DRAIN, "--dry-run").out
        assert "7 reserved units are at risk" in out
        assert "warning: waits 3.2 s first" in out


def test_reservations_can_be_overruled_by_name(meridian: Meridian, api: OperatorServer) -> None:
    meridian(*DRAIN, "--override-reservations")
    assert (orders(api)[-1]["override_reservations"], orders(api)[-1]["force"]) == (True, False)


def test_restore_is_the_same_the_other_way(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian("restore", "us-east-1", "--reason", "done")
    assert ran.code == 0
    assert orders(api)[-1]["kind"] == "restore"
    assert "  sim/glm-5.3  then served by eu-north-1\n" in ran.out


def test_one_invocation_sends_one_key_and_the_next_another(meridian: Meridian, api: OperatorServer) -> None:
    meridian(*DRAIN)
    meridian(*DRAIN)
    keys = [call.headers.get("idempotency-key") for call in api.calls if not json.loads(call.body)["dry_run"]]
    assert len(keys) == 2
    assert len(set(keys)) == 2


def test_an_order_that_is_sent_twice_makes_one_operation(meridian: Meridian, api: OperatorServer) -> None:
    meridian.point_at([api.url, api.url])
    plan = meridian(*DRAIN, "--dry-run", "-o", "json").out
    api.scripted.extend([Raw(200, plan.encode()), Raw(status=0)])
    ran = meridian(*DRAIN)
    assert ran.code == 0
    assert list(api.operations) == ["op_1"]


def test_a_refusal_names_the_rule_and_its_numbers(meridian: Meridian, api: OperatorServer) -> None:
    api.refusal = LAST
    ran = meridian(*DRAIN)
    assert ran.code == 3
    assert "then served by nothing" in ran.out
    assert ran.err.splitlines() == [
        "error: us-east-1 is the last healthy datacenter of sim/glm-5.3",
        "  rule     last_healthy_datacenter",
        "  healthy  1",
        "  needed   2",
    ]


def test_a_refused_plan_is_not_ordered(meridian: Meridian, api: OperatorServer) -> None:
    api.refusal = LAST
    meridian(*DRAIN)
    assert [order["dry_run"] for order in orders(api)] == [True]


def test_a_refusal_in_json_is_data(meridian: Meridian, api: OperatorServer) -> None:
    api.refusal = LAST
    ran = meridian(*DRAIN, "-o", "json")
    assert (ran.code, ran.out) == (3, "")
    assert json.loads(ran.err)["numbers"] == {"healthy": "1", "needed": "2"}


def test_force_overrules_the_refusal(meridian: Meridian, api: OperatorServer) -> None:
    api.refusal = LAST
    ran = meridian(*DRAIN, "--force")
    assert ran.code == 0
    assert "forced: the safety rules are overruled" in ran.out
    assert api.operations["op_1"].forced


def test_a_refusal_that_comes_only_with_the_order_is_a_refusal_too(meridian: Meridian, api: OperatorServer) -> None:
    plan = meridian(*DRAIN, "--dry-run", "-o", "json").out
    api.scripted.extend([Raw(200, plan.encode()), Raw(409, LAST.model_dump_json().encode())])
    ran = meridian(*DRAIN)
    assert ran.code == 3
    assert "last_healthy_datacenter" in ran.err


def test_waiting_prints_a_line_for_each_change_and_ends_well(meridian: Meridian) -> None:
    ran = meridian(*DRAIN, "--wait")
    assert ran.code == 0
    lines = [re.sub(r"^ *[0-9.]+s  ", "", line) for line in ran.out.split("\n\n")[1].splitlines()]
    assert lines == [
        "move traffic by degrees, running", "move traffic by degrees, done",
        "let open requests finish, running: 14 open", "let open requests finish, done: 14 open",
        "mark it drained, running", "mark it drained, done",
        "drain of us-east-1 succeeded in 1m 15s  op_1",
    ]


def test_waiting_in_json_prints_only_the_end(meridian: Meridian) -> None:
    ran = meridian(*DRAIN, "--wait", "-o", "json")
    assert ran.json["operation"]["state"] == "succeeded"
    assert ran.err == ""


@pytest.mark.parametrize("ending", [
    OperationState.FAILED, OperationState.CANCELLED, OperationState.ROLLED_BACK])
def test_an_operation_that_ends_badly_is_exit_code_five(meridian: Meridian, api: OperatorServer,
                                                        ending: OperationState) -> None:
    api.ending = ending
    ran = meridian(*DRAIN, "--wait")
    assert ran.code == 5
    assert ran.err == f"error: drain of us-east-1 ended {ending}: the agent is away\n"


def test_an_operation_that_ends_badly_still_prints_its_json(meridian: Meridian, api: OperatorServer) -> None:
    api.ending = OperationState.FAILED
    ran = meridian(*DRAIN, "--wait", "-o", "json")
    assert ran.json["operation"]["error"] == "the agent is away"
    assert json.loads(ran.err)["code"] == "operation_failed"


def test_an_operation_that_outlasts_the_wait_is_exit_code_four(meridian: Meridian, api: OperatorServer) -> None:
    api.stuck = True
    ran = meridian(*DRAIN, "--wait", "--timeout", "0.05s")
    assert ran.code == 4
    assert ran.err.endswith("follow it with: meridian operations watch op_1\n")


def test_waiting_goes_on_while_the_control_plane_is_away(meridian: Meridian, api: OperatorServer) -> None:
    dry, order = meridian(*DRAIN, "--dry-run", "-o", "json").out, meridian(*DRAIN, "-o", "json").out
    api.scripted.extend([Raw(200, dry.encode()), Raw(200, order.encode()), Raw(503), Raw(status=0)])
    assert meridian(*DRAIN, "--wait").code == 0


def test_in_plain_the_answer_is_one_line(meridian: Meridian) -> None:
    assert meridian(*DRAIN, "-o", "plain").out == "op_1\tplanned\n"


def test_a_reason_is_demanded(meridian: Meridian) -> None:
    ran = meridian("drain", "us-east-1")
    assert ran.code == 2
    assert "Missing option '--reason'" in ran.err


@pytest.mark.parametrize(("arguments", "said"), [
    (("--reason", ""), "reason: string should"),
    (("--reason", "x" * 501), "reason: string should"),
    (("--reason", "x", "--deadline", "2d"), "deadline: input should"),
    (("--reason", "x", "--deadline", "0s"), "deadline: input should"),
    (("--reason", "x", "--deadline", "soon"), "is no length of time"),
])
def test_what_cannot_be_ordered_is_a_usage_error(meridian: Meridian, api: OperatorServer, arguments: tuple[str, ...],
                                                 said: str) -> None:
    ran = meridian("drain", "us-east-1", *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert api.calls == []


def test_a_wrong_token_is_one_clear_line(meridian: Meridian, api: OperatorServer) -> None:
    meridian.point_at([api.url], token="wrong")
    ran = meridian(*DRAIN)
    assert (ran.code, ran.err) == (1, "error: the operator token was not accepted: no such token\n")
