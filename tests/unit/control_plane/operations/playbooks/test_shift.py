"""A shift, step by step."""

from dataclasses import replace
from typing import Any

import pytest

from control_plane.contracts.operations import OperationKind, ShiftOrder
from control_plane.operations.decision import Verdict
from control_plane.operations.facts import QualityCounts
from control_plane.operations.safety import Violation
from tests.unit.control_plane.operations.playbooks.walking import Walk, cell, facts

POOL = cell("b", "east").pools[0]


def order(**changes: Any) -> ShiftOrder:
    fields = {"model": "glm", "source": "west", "target": "east", "percent": 30, "step_percent": 10}
    return ShiftOrder(**fields | changes)


def walk(seen: dict[str, Any] | None = None, **changes: Any) -> Walk:
    return Walk(OperationKind.SHIFT, facts(order(**changes), **seen or {}))


def test_traffic_moves_step_by_step() -> None:
    shift = walk()
    assert shift.go() is Verdict.DONE
    assert [shares for _, shares in shift.history] == [
        {"a": 900, "b": 1_100}, {"a": 800, "b": 1_200}, {"a": 700, "b": 1_300}]
    assert shift.said[-1] == "30% of west go to east"


def test_the_last_step_is_as_small_as_what_is_left() -> None:
    shift = walk(percent=25)
    shift.go()
    assert [shares["a"] for _, shares in shift.history] == [900, 800, 750]


def test_each_step_is_held_for_the_interval() -> None:
    shift = walk(interval_s=20.0)
    shift.go()
    assert shift.seen.now_s - 1_000.0 >= 60.0


def test_a_step_waits_for_every_edge() -> None:
    shift = walk()
    shift.acks = False
    assert shift.go() is Verdict.BACK
    assert len([shares for _, shares in shift.history if shares["a"] == 900]) == 1
    assert any("waits for version 8" in said for said in shift.said)


def test_an_edge_that_never_takes_a_step_turns_it_back_and_does_not_hold_that_up() -> None:
    shift = walk()
    shift.acks = False
    shift.go()
    assert (shift.share("a"), shift.share("b")) == (1_000, 1_000)
    assert shift.done == ["preflight", "shift", "undo"]


def test_a_broken_rule_refuses_it_before_anything_moved() -> None:
    shift = walk({"violation": Violation("target_ready", "east is not ready")})
    assert shift.go() is Verdict.REFUSE
    assert shift.history == []


def test_a_rule_that_breaks_half_way_turns_it_back() -> None:
    shift = walk()

    def capacity_goes(walk: Walk) -> None:
        if walk.share("a") == 800:
            walk.seen = replace(walk.seen, violation=Violation("headroom", "east would hold too little"))

    shift.each_look = capacity_goes
    assert shift.go() is Verdict.BACK
    assert "east would hold too little" in shift.said
    assert (shift.share("a"), shift.share("b")) == (1_000, 1_000)


def test_a_target_that_fails_more_than_the_source_turns_it_back() -> None:
    shift = walk()
    shift.each_look = lambda walk: walk.count("east", succeeded=1, failed=1)
    assert shift.go() is Verdict.BACK
    assert any("east: 3 of 6 requests failed" in said for said in shift.said)
    assert (shift.share("a"), shift.share("b")) == (1_000, 1_000)


def test_a_target_that_fails_no_more_than_the_source_is_not_blamed() -> None:
    shift = walk()

    def both_fail(walk: Walk) -> None:
        walk.count("east", succeeded=1, failed=1)
        walk.count("west", succeeded=1, failed=1)

    shift.each_look = both_fail
    assert shift.go() is Verdict.DONE


def test_failures_from_before_a_step_are_not_counted_against_it() -> None:
    shift = walk({"quality": {"east": QualityCounts(succeeded=10, failed=500)}})
    assert shift.go() is Verdict.DONE


@pytest.mark.parametrize(("condition", "words"), [
    ("headroom<17", "headroom<17: it is 16"), ("queue>2", "queue>2: it is 3")])
def test_a_condition_that_comes_true_turns_it_back(condition: str, words: str) -> None:
    shift = walk({"deployments": (cell("a", "west"), cell("b", "east", load=4, queued=3))}, abort_if=condition)
    assert shift.go() is Verdict.BACK
    assert f"east: {words}" in shift.said
    assert shift.share("a") == 1_000


def test_a_condition_without_data_is_told_and_ends_nothing() -> None:
    shift = walk(abort_if="ttft_p90>1ms")
    assert shift.go() is Verdict.DONE
    assert shift.said[-1] == "30% of west go to east; no data for ttft_p90>1ms"


@pytest.mark.parametrize("loads", [{"load": None}, {"pools": (POOL.model_copy(update={"max_inflight": None}),)}])
def test_headroom_that_nobody_knows_is_no_data(loads: dict[str, Any]) -> None:
    shift = walk({"deployments": (cell("a", "west"), cell("b", "east", **loads))}, abort_if="headroom<1000")
    assert shift.go() is Verdict.DONE


def test_it_goes_no_further_while_the_target_is_not_ready() -> None:
    shift = walk()

    def breaks_and_heals(walk: Walk) -> None:
        walk.change("b", unready="b is degraded" if 1_002 < walk.seen.now_s < 1_100 else "")

    shift.each_look = breaks_and_heals
    assert shift.go() is Verdict.DONE
    assert "goes no further: b is degraded" in shift.said
    assert shift.seen.now_s > 1_100


def test_the_deadline_turns_it_back() -> None:
    shift = walk({"deadline_s": 1_006.0})
    assert shift.go() is Verdict.BACK
    assert "the deadline passed at: 10% of west go to east" in shift.said
    assert (shift.share("a"), shift.share("b")) == (1_000, 1_000)


def test_a_replica_goes_on_where_another_one_died() -> None:
    """The same facts decide the same, whoever looks."""
    shift = walk()
    shift.go()
    again = walk()
    again.each_look = lambda walk: setattr(walk, "seen", replace(walk.seen))
    again.go()
    assert again.history == shift.history


def test_all_of_it_may_move() -> None:
    shift = walk(percent=100, step_percent=50)
    assert shift.go() is Verdict.DONE
    assert (shift.share("a"), shift.share("b")) == (0, 2_000)


def test_a_deployment_without_replicas_gets_no_part() -> None:
    empty = cell("c", "east", pools=(POOL.model_copy(update={"replicas": 0}),))
    shift = walk({"deployments": (cell("a", "west"), cell("b", "east"), empty)})
    shift.go()
    assert (shift.share("b"), shift.share("c")) == (1_300, 1_000)
