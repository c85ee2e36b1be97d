"""What the steps of a restore decide."""

from dataclasses import replace

import pytest

from control_plane.contracts.agent_sync import CommandKind
from control_plane.contracts.deployment import Pool, PoolRole
from control_plane.contracts.operations import OperationKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Order, Verdict
from control_plane.operations.facts import (
    Memory,
    ProbeFacts,
)
from control_plane.operations.machine import CommandStatus
from control_plane.operations.playbooks import PLAYBOOKS
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent, move_traffic
from tests.unit.control_plane.operations.west import CELL, HELD, LATE, NOW_S, SEEN, fleet, restore


class TestRestore:
    def test_preflight_waits_for_deployments_and_names_them(self) -> None:
        decision = restore(StepName.PREFLIGHT, **fleet(unready="west-a-glm is provisioning"))
        assert decision.verdict is Verdict.WAIT
        assert "west-a-glm is provisioning" in decision.detail

    def test_preflight_waits_for_agents(self) -> None:
        assert "agent is not heard from" in restore(StepName.PREFLIGHT, **fleet(lease_live=False)).detail

    def test_preflight_fails_at_the_deadline_and_leaves_traffic_away(self) -> None:
        decision = restore(StepName.PREFLIGHT, **fleet(lease_live=False), **LATE)
        assert (decision.verdict, decision.moves) == (Verdict.FAIL, ())

    def test_a_datacenter_without_a_fleet_is_not_ready(self) -> None:
        assert "has no fleet" in restore(StepName.PREFLIGHT, fleets=()).detail

    @pytest.mark.parametrize("state", sorted(PLAYBOOKS[OperationKind.RESTORE].starts_from))
    def test_warm_leads_to_warming_from_every_state_that_it_starts_from(self, state: TrafficState) -> None:
        after = state
        for event in restore(StepName.WARM, traffic_state=state).moves:
            after = move_traffic(after, event)
        assert after is TrafficState.WARMING

    def test_warm_fails_when_traffic_is_active_already(self) -> None:
        assert restore(StepName.WARM, traffic_state=TrafficState.ACTIVE).verdict is Verdict.FAIL

    def test_probe_counts_each_new_report_once(self) -> None:
        first = restore(StepName.PROBE)
        again = restore(StepName.PROBE, memory=first.memory)
        assert (first.memory.healthy, again.memory.healthy) == (1, 1)

    def test_probe_is_done_after_three_reports(self) -> None:
        memory = Memory()
        for number in range(2):
            decision = restore(StepName.PROBE, memory=memory, **fleet(observed_at_s=NOW_S + number))
            assert decision.verdict is Verdict.WAIT
            memory = decision.memory
        assert restore(StepName.PROBE, memory=memory, **fleet(observed_at_s=NOW_S + 3)).verdict is Verdict.DONE

    def test_probe_asks_each_deployment_that_has_replicas_once_it_was_seen_healthy(self) -> None:
        idle = replace(CELL, id="idle", pools=(Pool(role=PoolRole.DECODE, replicas=0),))
        decision = restore(StepName.PROBE, memory=SEEN, deployments=(CELL, idle))
        assert decision.orders == (Order(CommandKind.PROBE, "west-a", "west-a-glm", 1),)
        assert decision.detail == "3 of 3 healthy observations; west-a-glm has yet to answer a request"

    def test_probe_is_done_when_it_answered(self) -> None:
        cell = replace(CELL, probe=ProbeFacts(1, CommandStatus.SUCCEEDED, "a token"))
        assert restore(StepName.PROBE, memory=SEEN, deployments=(cell,)).verdict is Verdict.DONE

    @pytest.mark.parametrize(("since_s", "orders"), [
        (NOW_S - 1, ()), (NOW_S - 2, (Order(CommandKind.PROBE, "west-a", "west-a-glm", 2),))])
    def test_a_probe_that_failed_is_repeated_after_a_while(self, since_s: float, orders: tuple[Order, ...]) -> None:
        cell = replace(CELL, probe=ProbeFacts(1, CommandStatus.FAILED, "HTTP 500"))
        decision = restore(StepName.PROBE, memory=replace(SEEN, stage_since_s=since_s), deployments=(cell,))
        assert (decision.verdict, decision.orders) == (Verdict.WAIT, orders)
        assert "did not answer probe 1: HTTP 500" in decision.detail

    def test_force_overrules_a_probe_that_failed(self) -> None:
        cell = replace(CELL, probe=ProbeFacts(1, CommandStatus.FAILED, "HTTP 500"))
        decision = restore(StepName.PROBE, memory=SEEN, deployments=(cell,), forced=True)
        assert (decision.verdict, decision.detail) == (Verdict.DONE, (
            "3 of 3 healthy observations; overruled: west-a-glm did not answer probe 1: HTTP 500"))

    def test_without_an_answer_by_the_deadline_it_rests_drained(self) -> None:
        decision = restore(StepName.PROBE, traffic_state=TrafficState.WARMING, memory=SEEN, deployments=(CELL,), **LATE)
        assert (decision.verdict, decision.moves) == (Verdict.FAIL, (TrafficEvent.ABANDON,))

    def test_the_ramp_begins_with_a_tenth(self) -> None:
        decision = restore(StepName.RAMP, traffic_state=TrafficState.WARMING)
        assert (decision.verdict, decision.ramp_percent) == (Verdict.WAIT, 10)

    def test_the_ramp_ends_with_all_of_it_held(self) -> None:
        warming = {"traffic_state": TrafficState.WARMING, "ramp_percent": 100}
        assert restore(StepName.RAMP, **warming, memory=Memory(stage_since_s=NOW_S)).verdict is Verdict.WAIT
        assert restore(StepName.RAMP, **warming, memory=HELD).verdict is Verdict.DONE

    def test_probe_begins_again_after_an_unhealthy_report(self) -> None:
        decision = restore(StepName.PROBE, memory=Memory(healthy=2), **fleet(unready="west-a-glm is degraded"))
        assert (decision.verdict, decision.memory) == (Verdict.WAIT, Memory())

    def test_probe_gives_up_at_the_deadline_and_lets_it_rest_drained(self) -> None:
        decision = restore(StepName.PROBE, traffic_state=TrafficState.WARMING, **fleet(lease_live=False), **LATE)
        assert (decision.verdict, decision.moves) == (Verdict.FAIL, (TrafficEvent.ABANDON,))

    def test_open_brings_the_traffic_back(self) -> None:
        assert restore(StepName.OPEN, traffic_state=TrafficState.WARMING).moves == (TrafficEvent.OPEN,)

    def test_open_does_nothing_the_second_time(self) -> None:
        assert restore(StepName.OPEN, traffic_state=TrafficState.ACTIVE).moves == ()

    def test_open_fails_when_the_state_is_another_ones(self) -> None:
        assert restore(StepName.OPEN, traffic_state=TrafficState.FAILED).verdict is Verdict.FAIL
