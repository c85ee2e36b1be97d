"""Capacity, plans and their explanation on the command line."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from control_plane.contracts.capacity import (
    BoundView,
    CapacityView,
    Figures,
    FleetCapacity,
    ModelCapacity,
    PlaceCapacity,
    PlannerMode,
    PlannerView,
    PlanView,
    PoolCapacity,
    RegionNeed,
    Verdict,
)
from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.operator import Page
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import NOW, OperatorServer, Raw

PLANNER = PlannerView(
    mode=PlannerMode.ADVISE, reason=None, changed_by=None, changed_at=None, planned_at=NOW, frozen=None)
FIGURES = Figures(load=18, quiet_load=21, expected=17.25, per_replica=10, utilisation=0.9, quiet_utilisation=1.05,
                  kv_usage=0.25, coverage=1)


def pool(role: PoolRole, **changes: Any) -> PoolCapacity:
    return PoolCapacity(role=role, replicas=2, ready=2, max_inflight=10, gpus_per_replica=1, minimum=1, maximum=None,
                        load=18, utilisation=0.9).model_copy(update=changes)


def place(datacenter: str, **changes: Any) -> PlaceCapacity:
    return PlaceCapacity(
        datacenter=datacenter, region=datacenter, fleet=f"{datacenter}-a", deployment=f"{datacenter}-a-glm",
        serves=True, ready=20, load=18, utilisation=0.9, kv_usage=0.25,
        pools=[pool(PoolRole.DECODE)]).model_copy(update=changes)


def view(*places: PlaceCapacity, planner: PlannerView = PLANNER, **changes: Any) -> CapacityView:
    model = ModelCapacity(
        model="sim/glm-5.3", ready=1_040, load=24, peak=28, expected=None, reserved=0, required=34, headroom=1_006,
        utilisation=0.6, regions=[], places=list(places)).model_copy(update=changes)
    return CapacityView(as_of=NOW, planner=planner, models=[model], fleets=[FleetCapacity(
        fleet="us-east-1-a", datacenter="us-east-1", gpu_type="H200", total=8, used=3)])


def verdict(**changes: Any) -> Verdict:
    return Verdict(
        model="sim/glm-5.3", datacenter="us-east-1", fleet="us-east-1-a", deployment="us-east-1-a-glm",
        role=PoolRole.DECODE, before=2, after=3, wanted=3, gpus=1, rule=None, why="90% used, over 80%",
        leaves="60% used, 4 of 8 GPUs free", figures=FIGURES).model_copy(update=changes)


def plan(*verdicts: Verdict, mode: PlannerMode = PlannerMode.ADVISE, applied: bool = False) -> PlanView:
    return PlanView(id=None, at=NOW, mode=mode, applied=applied, verdicts=list(verdicts))


def answers(api: OperatorServer, *documents: BaseModel) -> None:
    api.scripted.extend(Raw(200, document.model_dump_json().encode()) for document in documents)


CONTENT = verdict(datacenter="eu-north-1", deployment="eu-north-1-a-glm", after=2, wanted=2, gpus=0, rule="dead_band",
                  why="65% used; between 50% and 80% nothing is moved", leaves="")
HELD = verdict(role=PoolRole.PREFILL, after=2, gpus=0, rule="step_interval", why="stepped 60 s ago", leaves="")


def test_capacity_is_shown_by_model_datacenter_pool_and_fleet(meridian: Meridian, api: OperatorServer) -> None:
    answers(api, view(place("us-east-1"), place("eu-north-1")))
    out = meridian("capacity").out
    assert [word for word in ("sim/glm-5.3", "1,040", "us-east-1-a-glm", "2/2", "3/8", "H200", "90%", "1 or more")
            if word not in out] == []
    assert "The planner's mode is advise, as configured; looked last" in out
    assert api.calls[0].path == "/operator/v1/capacity"


def test_the_tables_fit_a_terminal(meridian: Meridian, api: OperatorServer) -> None:
    answers(api, view(place("us-east-1"), place("eu-north-1")), *[plan(verdict(), HELD, CONTENT)] * 2)
    for arguments in (["capacity"], ["capacity", "plan"], ["capacity", "plan", "--explain"]):
        lines = meridian(*arguments).out.splitlines()[2:]
        assert max(map(len, lines)) <= 80


def test_what_nobody_knows_is_a_dash_and_not_a_zero(meridian: Meridian, api: OperatorServer) -> None:
    unknown = place("us-east-1", ready=None, load=None, utilisation=None, kv_usage=None, pools=[])
    answers(api, view(unknown, ready=None, peak=None, headroom=None, load=None, utilisation=None))
    rows = [line.split("\t") for line in meridian("capacity", "-o", "plain").out.splitlines()]
    assert rows[1] == ["sim/glm-5.3", "all", "–", "–", "–", "", "–", "0", "–"]  # noqa: RUF001


def test_what_regions_need_for_reservations_is_shown(meridian: Meridian, api: OperatorServer) -> None:
    need = RegionNeed(regions=["eu", "us"], ready=20, reserved=30, required=36, headroom=-16)
    answers(api, view(place("us-east-1"), regions=[need]))
    assert ["", "eu, us", "20", "", "", "", "", "30", "-16"] in [
        line.split("\t") for line in meridian("capacity", "-o", "plain").out.splitlines()]


def test_a_datacenter_that_serves_nothing_is_named(meridian: Meridian, api: OperatorServer) -> None:
    answers(api, view(place("us-east-1"), place("eu-north-1", serves=False)))
    assert "eu-north-1 serves nothing now, so what it holds does not count" in meridian("capacity").out


def test_who_set_the_mode_and_who_froze_automation_is_told(meridian: Meridian, api: OperatorServer) -> None:
    planner = PLANNER.model_copy(update={
        "mode": PlannerMode.AUTO, "changed_by": "operator:olga", "changed_at": NOW, "reason": "launch",
        "frozen": "automation is frozen by operator:ada: storm"})
    answers(api, view(place("us-east-1"), planner=planner))
    out = " ".join(meridian("capacity").out.split())
    assert "The planner's mode is auto" in out
    assert "by operator:olga: launch" in out
    assert "automation is frozen by operator:ada: storm" in out


def test_a_plan_shows_moves_and_what_a_rule_held_back(meridian: Meridian, api: OperatorServer) -> None:
    answers(api, plan(verdict(), HELD, CONTENT))
    out = " ".join(meridian("capacity", "plan").out.split())
    assert [word for word in ("2 → 3", "step interval", "2 (3)", "1 pool more: content", "would move 1 pool;",
                              "told and not carried out") if word not in out] == []
    assert "dead band" not in out


def test_an_explained_plan_tells_of_every_pool_with_its_numbers(meridian: Meridian, api: OperatorServer) -> None:
    answers(api, plan(verdict(), HELD, CONTENT))
    rows = [line.split("\t") for line in meridian("capacity", "plan", "--explain", "-o", "plain").out.splitlines()]
    assert ["eu-north-1", "sim/glm-5.3", "decode", "2", "dead band", CONTENT.why] in rows
    assert ["us-east-1-a-glm", "decode", "18", "17.2", "21", "10", "90%", "25%", "100%"] in rows


def test_a_plan_that_moves_nothing_says_so(meridian: Meridian, api: OperatorServer) -> None:
    answers(api, plan(CONTENT))
    out = " ".join(meridian("capacity", "plan").out.split())
    assert "a plan would move nothing" in out
    assert "Nothing to move: meridian capacity plan --explain tells why." in out


@pytest.mark.parametrize(("mode", "words"), [
    (PlannerMode.AUTO, "it would be carried out"), (PlannerMode.OFF, "the planner is off")])
def test_a_plan_says_what_would_become_of_it(meridian: Meridian, api: OperatorServer, mode: PlannerMode,
                                             words: str) -> None:
    answers(api, plan(verdict(), mode=mode))
    assert words in " ".join(meridian("capacity", "plan").out.split())


def test_plans_that_moved_something_are_listed_and_all_on_demand(meridian: Meridian, api: OperatorServer) -> None:
    answers(api, Page[PlanView](data=[plan(verdict(), mode=PlannerMode.AUTO, applied=True)], next_cursor=None),
            Page[PlanView](data=[plan(CONTENT)], next_cursor=None))
    assert "us-east-1-a-glm decode 2 → 3" in meridian("capacity", "history", "-o", "plain").out
    assert "none" in meridian("capacity", "history", "--all").out
    assert [call.query.get("only_moves") for call in api.calls] == [["true"], None]


def test_the_mode_is_changed_with_a_reason(meridian: Meridian, api: OperatorServer) -> None:
    answers(api, PLANNER)
    assert meridian("capacity", "mode", "auto", "--reason", "launch").code == 0
    assert json.loads(api.calls[0].body) == {"mode": "auto", "reason": "launch"}


@pytest.mark.parametrize("arguments", [
    ["mode", "auto"], ["mode", "sometimes", "-r", "x"], ["mode", "auto", "-r", ""],
    ["bound", "d", "decode", "-r", "x", "--min", "3", "--max", "2"], ["bound", "d", "encode", "-r", "x"]])
def test_what_makes_no_sense_is_a_usage_error_and_is_not_sent(meridian: Meridian, api: OperatorServer,
                                                              arguments: list[str]) -> None:
    assert meridian("capacity", *arguments).code == 2
    assert api.calls == []


def test_a_pool_is_held_between_two_counts(meridian: Meridian, api: OperatorServer) -> None:
    answers(api, BoundView(deployment="us-east-1-a-glm", role=PoolRole.DECODE, minimum=0, maximum=4))
    ran = meridian("capacity", "bound", "us-east-1-a-glm", "decode", "--min", "0", "--max", "4", "-r", "nights")
    assert "us-east-1-a-glm decode: at least 0 replicas, at most 4" in " ".join(ran.out.split())
    assert (api.calls[0].method, api.calls[0].path) == ("PUT", "/operator/v1/capacity/bounds")


def test_json_is_the_contract_itself(meridian: Meridian, api: OperatorServer) -> None:
    shown = view(place("us-east-1"))
    answers(api, shown, shown, plan(verdict()))
    assert CapacityView.model_validate_json(meridian("capacity", "-o", "json").out) == shown
    assert CapacityView.model_validate_json(meridian("-o", "json", "capacity").out) == shown
    assert PlanView.model_validate_json(meridian("capacity", "plan", "-o", "json").out) == plan(verdict())
