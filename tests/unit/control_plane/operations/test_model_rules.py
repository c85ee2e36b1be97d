"""The safety rules for a model's traffic."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from control_plane.capacity.headroom import Holding
from control_plane.capacity.reservations import Reservation
from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.clock import utc
from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.operations import OperationKind, OperationRequest, RolloutOrder, ShiftOrder
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations import model_rules
from control_plane.operations.model_rules import Supply
from control_plane.operations.scope import DeploymentRow, FleetRow, Scope
from control_plane.topology.models import Datacenter, Deployment, Pool

NOW = utc(1_800_000_000)
SHIFT = ShiftOrder(model="glm", source="west", target="east", percent=50)


def datacenter(name: str, state: TrafficState = TrafficState.ACTIVE, weight: int = 100) -> Datacenter:
    return Datacenter(id=name, region_id=name, traffic_state=state, weight=weight, ramp_percent=0, evacuate=False)


def deployment(place: str, **changes: Any) -> DeploymentRow:
    replicas = changes.pop("replicas", 2)
    fields: dict[str, Any] = {
        "id": f"{place}-glm", "model_id": "glm", "fleet_id": f"{place}-a", "generation": 2, "observed_generation": 2,
        "phase": DeploymentPhase.READY, "share_permille": 1_000, "engine": {"kind": "sim"}}
    row = Deployment(**fields | changes)
    pool = Pool(deployment_id=row.id, role=PoolRole.AGGREGATED, replicas=replicas, gpus_per_replica=1,
                max_inflight=10, ready_replicas=replicas)
    return DeploymentRow(row, (pool,))


def seen(*deployments: DeploymentRow, silent: str = "", required: int = 1, **places: Datacenter) -> Scope:
    centers = {"east": datacenter("east"), "west": datacenter("west")} | places
    return Scope(
        now=NOW, datacenters=centers, edges=(), leaving=frozenset(), required={"glm": required},
        fleets=tuple(FleetRow(f"{name}-a", name, lease_live=name != silent, observed_at=NOW - timedelta(seconds=1))
                     for name in centers),
        deployments=deployments or (deployment("east"), deployment("west")))


def supply(east: int | None = 20, west: int | None = 20, peak: int | None = None, reserved: int = 0) -> Supply:
    return Supply(
        holdings=(Holding("east-glm", "glm", "east", "east", east, True),
                  Holding("west-glm", "glm", "west", "west", west, True)),
        peaks={} if peak is None else {"glm": peak},
        reservations=(Reservation("res_1", "glm", reserved),) if reserved else ())


def rule_of_shift(scope: Scope, held: Supply | None = None, **changes: Any) -> str | None:
    found = model_rules.check_shift(SHIFT.model_copy(update=changes), scope, held or supply())
    return found.rule if found else None


def rule_of_rollout(scope: Scope, held: Supply | None = None) -> str | None:
    found = model_rules.check_rollout(["west-glm"], scope, held or supply())
    return found.rule if found else None


class TestShift:
    def test_a_ready_target_with_room_may_take_more(self) -> None:
        assert rule_of_shift(seen()) is None

    @pytest.mark.parametrize("target", [
        deployment("east", phase=DeploymentPhase.DEGRADED), deployment("east", phase=None),
        deployment("east", observed_generation=1), deployment("east", replicas=0)])
    def test_a_target_that_is_not_ready_may_not(self, target: DeploymentRow) -> None:
        assert rule_of_shift(seen(target, deployment("west"))) == "target_ready"

    def test_a_target_whose_agent_is_silent_may_not(self) -> None:
        assert rule_of_shift(seen(silent="east")) == "target_ready"

    @pytest.mark.parametrize("state", [TrafficState.DRAINED, TrafficState.FAILED, TrafficState.WARMING])
    def test_a_target_that_is_not_active_may_not(self, state: TrafficState) -> None:
        assert rule_of_shift(seen(east=datacenter("east", state))) == "target_ready"

    def test_a_target_that_is_leaving_may_not(self) -> None:
        assert rule_of_shift(replace(seen(), leaving=frozenset({"east"}))) == "target_ready"

    def test_a_source_without_traffic_has_nothing_to_give(self) -> None:
        assert rule_of_shift(seen(deployment("east"), deployment("west", share_permille=0))) == "nothing_to_shift"

    def test_a_share_has_a_highest_value(self) -> None:
        assert rule_of_shift(seen(west=datacenter("west", weight=10_000))) == "share_range"

    @pytest.mark.parametrize(("peak", "rule"), [(22, None), (23, "headroom")])
    def test_the_target_must_hold_its_part_of_the_peak_with_a_margin(self, peak: int, rule: str | None) -> None:
        """Three quarters of 22 are 17, and 1.2 times that is 21; of 23 it is 22."""
        assert rule_of_shift(seen(), supply(east=21, peak=peak)) == rule

    def test_reservations_count_where_they_are_more_than_the_peak(self) -> None:
        assert rule_of_shift(seen(), supply(peak=1, reserved=40)) == "headroom"

    def test_capacity_that_nobody_knows_refuses_nothing(self) -> None:
        assert rule_of_shift(seen(), supply(east=None, peak=1_000)) is None


    def test_all_of_it_may_only_move_where_enough_datacenters_go_on_serving(self) -> None:
        assert rule_of_shift(seen(), percent=100) is None
        assert rule_of_shift(seen(required=2), percent=100) == "last_datacenter"
        assert rule_of_shift(seen(required=2), percent=99) is None

    @pytest.mark.parametrize(("peak", "rule"), [(20, None), (24, "headroom")])
    def test_half_way_the_target_is_judged_by_where_the_shift_leads(self, peak: int, rule: str | None) -> None:
        """Three quarters in the end, though it has five eighths already."""
        half_way = seen(deployment("east", share_permille=1_250), deployment("west", share_permille=750))
        before = {"east-glm": 1_000, "west-glm": 1_000}
        found = model_rules.check_shifting(SHIFT, before, half_way, supply(east=21, peak=peak))
        assert (found.rule if found else None) == rule


class TestRollout:
    def test_a_cell_that_others_stand_in_for_can_be_replaced(self) -> None:
        assert rule_of_rollout(seen()) is None

    @pytest.mark.parametrize("other", [
        deployment("east", phase=DeploymentPhase.PROVISIONING), deployment("east", share_permille=0),
        deployment("east", replicas=0)])
    def test_the_last_cell_that_serves_cannot(self, other: DeploymentRow) -> None:
        assert rule_of_rollout(seen(other, deployment("west"))) == "last_datacenter"

    def test_a_datacenter_that_is_away_stands_in_for_nobody(self) -> None:
        assert rule_of_rollout(seen(east=datacenter("east", TrafficState.DRAINED))) == "last_datacenter"

    def test_another_cell_of_the_same_datacenter_stands_in(self) -> None:
        second = deployment("west", id="west-glm-2")
        assert rule_of_rollout(seen(second, deployment("west"))) is None

    def test_a_cell_that_serves_nothing_is_not_missed(self) -> None:
        broken = deployment("west", phase=DeploymentPhase.PROVISIONING)
        assert rule_of_rollout(seen(deployment("east", replicas=0), broken)) is None

    def test_a_cell_whose_agent_is_silent_cannot(self) -> None:
        assert rule_of_rollout(seen(silent="west")) == "agent_heard"

    @pytest.mark.parametrize(("peak", "rule"), [(16, None), (17, "headroom")])
    def test_the_others_must_hold_the_peak_with_a_margin(self, peak: int, rule: str | None) -> None:
        assert rule_of_rollout(seen(), supply(peak=peak)) == rule

    def test_a_model_keeps_as_many_datacenters_as_it_must_have(self) -> None:
        assert rule_of_rollout(seen(required=2)) == "last_datacenter"

    def test_the_refusal_has_its_numbers(self) -> None:
        found = model_rules.check_rollout(["west-glm"], seen(), supply(peak=17))
        assert found is not None
        assert found.numbers == {"model": "glm", "cell": "west-glm", "ready_after": "20", "required": "21",
                                 "peak": "17", "reserved": "0"}


class TestPlan:
    def test_traffic_is_told_in_percent_of_the_model(self) -> None:
        change = model_rules.traffic(SHIFT, seen(west=datacenter("west", weight=300)))
        assert (change["west"].before_percent, change["west"].after_percent) == (75.0, 37.5)
        assert (change["east"].before_percent, change["east"].after_percent) == (25.0, 62.5)

    @pytest.mark.parametrize(("engine", "words"), [
        ({"kind": "sim"}, "east-glm, west-glm have this specification already"),
        ({"kind": "other"}, "goes on in one with the new only if")])
    def test_a_rollout_is_warned_of_what_no_rule_forbids(self, engine: dict[str, Any], words: str) -> None:
        asked = OperationRequest(kind=OperationKind.ROLLOUT, reason="test",
                                 rollout=RolloutOrder(model="glm", engine=engine))
        assert any(words in one for one in model_rules.warnings(asked, ["east-glm", "west-glm"], seen()))
