"""A rollout, cell by cell, and back."""

from dataclasses import replace
from typing import Any

import pytest

from control_plane.contracts.agent_sync import REFUSED
from control_plane.contracts.deployment import Pool, PoolRole
from control_plane.contracts.operations import OperationKind, RolloutOrder
from control_plane.operations.decision import Verdict
from control_plane.operations.facts import DeploymentFacts, QualityCounts
from control_plane.operations.machine import CommandStatus
from control_plane.operations.playbooks.rollout import PLAYBOOK
from control_plane.operations.safety import Violation
from tests.unit.control_plane.operations.playbooks.walking import NEW, OLD, Walk, cell, facts

VIOLATION = Violation("last_datacenter", "a is the last cell")


def order(**changes: Any) -> RolloutOrder:
    return RolloutOrder(**{"model": "glm", "engine": NEW} | changes)


def walk(seen: dict[str, Any] | None = None, **changes: Any) -> Walk:
    return Walk(OperationKind.ROLLOUT, facts(order(**changes), **seen or {}))


def never_ready(message: str = "") -> Any:
    def replaced(one: DeploymentFacts) -> DeploymentFacts:
        return replace(one, unready="" if one.engine == OLD else f"{one.id} is provisioning",
                       message="" if one.engine == OLD else message)
    return replaced


def is_as_before(rollout: Walk) -> bool:
    return all(one.engine == OLD and one.share_permille == 1_000 for one in rollout.seen.deployments)


class TestForward:
    def test_every_cell_gets_the_specification_and_its_traffic_back(self) -> None:
        rollout = walk()
        assert rollout.go() is Verdict.DONE
        assert all(one.engine == NEW and one.share_permille == 1_000 for one in rollout.seen.deployments)

    def test_one_cell_comes_after_the_other(self) -> None:
        rollout = walk()
        rollout.go()
        assert rollout.done == ["preflight"] + [
            f"{step} {name}" for name in "ab"
            for step in ("unload", "await_idle", "replace", "await_ready", "probe", "reload", "watch")]
        assert all(max(shares.values()) == 1_000 for _, shares in rollout.history)

    def test_traffic_goes_and_comes_by_degrees(self) -> None:
        rollout = walk()
        rollout.go()
        assert [shares["a"] for _, shares in rollout.history][:6] == [500, 200, 0, 100, 500, 1_000]

    def test_a_cell_is_replaced_without_traffic_and_idle(self) -> None:
        rollout = walk({"deployments": (cell("a", "west", load=3), cell("b", "east"))})
        seen: list[tuple[int, int | None]] = []

        def finishes(walk: Walk) -> None:
            if walk.said and walk.said[-1] == "3 requests inside a":
                walk.change("a", load=0)

        def noted(one: DeploymentFacts) -> DeploymentFacts:
            seen.append((one.share_permille, one.load))
            return replace(one, unready="")

        rollout.each_look, rollout.replaces = finishes, noted
        assert rollout.go() is Verdict.DONE
        assert seen == [(0, 0), (0, 0)]

    @pytest.mark.parametrize("load", [3, None])
    def test_requests_that_do_not_finish_in_time_are_moved_by_the_engine(self, load: int | None) -> None:
        rollout = walk({"deployments": (cell("a", "west", load=load), cell("b", "east"))}, finish_s=50.0)
        assert rollout.go() is Verdict.DONE
        assert any("left inside a: they go on" in said for said in rollout.said)

    def test_an_edge_that_still_routes_there_keeps_it_from_being_replaced(self) -> None:
        rollout = walk()
        rollout.acks = False
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        assert not any(said.startswith("a at generation") for said in rollout.said)

    def test_other_pools_alone_are_a_rollout(self) -> None:
        pools = [Pool(role=PoolRole.PREFILL, replicas=1), Pool(role=PoolRole.DECODE, replicas=3)]
        rollout = walk(engine=None, pools=pools)
        assert rollout.go() is Verdict.DONE
        assert all(one.engine == OLD and list(one.pools) == pools for one in rollout.seen.deployments)

    def test_a_cell_that_has_it_already_keeps_its_generation(self) -> None:
        rollout = walk({"deployments": (cell("a", "west", engine=NEW), cell("b", "east"))})
        assert rollout.go() is Verdict.DONE
        assert (rollout.deployment("a").generation, rollout.deployment("b").generation) == (3, 4)

    def test_a_cell_whose_share_was_shifted_gets_that_share_back(self) -> None:
        cells = cell("a", "west", share_permille=700), cell("b", "east", share_permille=1_300)
        rollout = walk({"deployments": cells})
        assert rollout.go() is Verdict.DONE
        assert (rollout.share("a"), rollout.share("b")) == (700, 1_300)

    def test_three_probes_must_answer(self) -> None:
        rollout = walk()
        asked: list[str] = []

        def answers(one: DeploymentFacts) -> CommandStatus:
            asked.append(one.id)
            return CommandStatus.SUCCEEDED

        rollout.probes = answers
        rollout.go()
        assert asked == ["a", "a", "a", "b", "b", "b"]

    def test_a_single_failed_probe_is_asked_again(self) -> None:
        rollout, answers = walk(), iter([CommandStatus.FAILED, CommandStatus.EXPIRED])
        rollout.probes = lambda one: next(answers, CommandStatus.SUCCEEDED)
        assert rollout.go() is Verdict.DONE

    def test_a_cell_that_is_scaled_to_zero_only_gets_the_specification(self) -> None:
        nothing = (Pool(role=PoolRole.AGGREGATED, replicas=0),)
        rollout = walk({"deployments": (cell("a", "west", pools=nothing), cell("b", "east"))})
        rollout.replaces = lambda one: replace(
            one, unready="" if one.id == "b" else "a is pending", observed_generation=one.generation)
        assert rollout.go() is Verdict.DONE
        assert rollout.deployment("a").engine == NEW
        assert "a is scaled to zero" in rollout.said

    @pytest.mark.parametrize(("succeeded", "words"), [
        (0, "a serves with the new specification; no request ended there to judge it by"),
        (1, "a serves with the new specification")])
    def test_a_watch_without_traffic_says_so(self, succeeded: int, words: str) -> None:
        rollout = walk()
        rollout.each_look = lambda walk: walk.count("west", succeeded=succeeded)
        assert rollout.go() is Verdict.DONE
        assert words in rollout.said

    def test_it_is_watched_for_as_long_as_ordered(self) -> None:
        short, long = walk(watch_s=0.0), walk(watch_s=500.0)
        short.go()
        long.go()
        assert long.seen.now_s - short.seen.now_s >= 990


class TestBack:
    def test_a_cell_that_is_never_ready_turns_it_back(self) -> None:
        rollout = walk(ready_s=40.0)
        rollout.replaces = never_ready("worker ended by itself")
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        assert any("was not ready within 40 s: worker ended by itself" in said for said in rollout.said)

    def test_a_specification_that_the_engine_refuses_turns_it_back_at_once(self) -> None:
        rollout = walk(ready_s=10_000.0)
        rollout.replaces = lambda one: replace(
            never_ready(f"{REFUSED}engine.cache: too small")(one),
            observed_generation=one.generation if one.engine == OLD else one.generation - 1)
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        assert f"a: {REFUSED}engine.cache: too small" in rollout.said
        assert rollout.seen.now_s < 1_200

    def test_probes_that_fail_turn_it_back_with_what_they_were_told(self) -> None:
        rollout = walk()
        rollout.probes = lambda one: CommandStatus.FAILED if one.engine == NEW else CommandStatus.SUCCEEDED
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        assert "a answered no probe: HTTP 500" in rollout.said

    def test_a_burned_budget_of_the_first_cell_turns_it_back_before_the_second(self) -> None:
        rollout = walk()
        rollout.each_look = lambda walk: walk.count(
            "west", succeeded=1, failed=int(walk.deployment("a").engine == NEW and walk.share("a") > 0))
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        assert rollout.deployment("b").generation == 3

    def test_a_budget_that_burns_in_the_second_cell_turns_both_back_the_last_first(self) -> None:
        rollout = walk()
        rollout.each_look = lambda walk: walk.count(
            "east", succeeded=1, failed=int(walk.deployment("b").engine == NEW and walk.share("b") > 0))
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        at = rollout.done.index("reload b") + 1
        assert rollout.done[at:] == [f"{step} {name}" for name in "ba" for step in (
            "unload", "await_idle", "replace", "await_ready", "probe", "reload")]

    def test_others_that_fail_while_a_cell_is_away_turn_it_back(self) -> None:
        rollout = walk({"quality": {"east": QualityCounts()}})
        rollout.each_look = lambda walk: walk.count("east", failed=1) if walk.share("a") < 1_000 else None
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        assert rollout.deployment("a").generation == 3

    def test_the_budget_is_the_ordered_one(self) -> None:
        rollout = walk(max_error_percent=60.0)
        rollout.each_look = lambda walk: walk.count("west", succeeded=1, failed=1)
        assert rollout.go() is Verdict.DONE

    def test_the_deadline_turns_it_back_and_does_not_hurry_the_way_back(self) -> None:
        rollout = walk({"deadline_s": 1_045.0})
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        assert rollout.done[-2:] == ["probe a", "reload a"]

    def test_requests_that_a_broken_engine_holds_are_not_waited_for_on_the_way_back(self) -> None:
        rollout = walk(finish_s=5_000.0)

        def holds(one: DeploymentFacts) -> CommandStatus:
            rollout.change("a", load=0 if one.engine == OLD else 6)
            return CommandStatus.SUCCEEDED if one.engine == OLD else CommandStatus.FAILED

        rollout.probes = holds
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        assert rollout.seen.now_s < 1_200

    def test_others_that_are_lost_meanwhile_give_the_cell_its_traffic_back(self) -> None:
        rollout = walk()

        def lost(walk: Walk) -> None:
            if walk.share("a") == 0:
                walk.seen = replace(walk.seen, violation=VIOLATION)

        rollout.each_look = lost
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        assert rollout.deployment("a").generation == 3

    def test_an_old_specification_that_does_not_come_up_either_is_told_and_gets_its_share(self) -> None:
        rollout = walk(ready_s=40.0)
        rollout.replaces = lambda one: replace(one, unready=f"{one.id} is provisioning")
        assert rollout.go() is Verdict.BACK
        assert is_as_before(rollout)
        assert any("a is still not ready, its traffic comes back once it is" in said for said in rollout.said)


class TestSafety:
    def test_a_broken_rule_refuses_it_before_anything_changed(self) -> None:
        rollout = walk({"violation": VIOLATION})
        assert rollout.go() is Verdict.REFUSE
        assert rollout.history == []

    def test_a_rule_that_breaks_before_the_second_cell_turns_it_back(self) -> None:
        rollout = walk()

        def breaks(walk: Walk) -> None:
            if walk.done and walk.done[-1] == "watch a":
                walk.seen = replace(walk.seen, violation=VIOLATION)

        rollout.each_look = breaks
        assert rollout.go() is Verdict.BACK
        assert rollout.deployment("b").generation == 3
        assert all(one.engine == OLD for one in rollout.seen.deployments)

    def test_a_forced_one_is_replaced_under_its_traffic(self) -> None:
        rollout = walk({"violation": VIOLATION, "forced": True, "deployments": (cell("a", "west", load=5),)})
        assert rollout.go() is Verdict.DONE
        assert rollout.history == []
        assert rollout.deployment("a").engine == NEW
        assert "a keeps its traffic: nobody else could hold it" in rollout.said

    def test_nothing_touched_is_nothing_to_undo(self) -> None:
        (step,) = PLAYBOOK.planned_back({})
        assert walk().look(step).verdict is Verdict.DONE
