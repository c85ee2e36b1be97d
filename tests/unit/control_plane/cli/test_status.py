"""The fleet at a glance: what is well, what is not, and what nobody knows."""

from typing import Any

import pytest

from control_plane.contracts.operations import OperationView, StepState, StepView
from control_plane.contracts.operator import DatacenterStatus, EdgeStatus, FleetStatus, StatusView
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import NOW, OperatorServer

EDGE_ID = "edge_019ac7aa0000700080000000deadbeef"


def fleet(**changes: Any) -> FleetStatus:
    return FleetStatus(**{"id": "us-east-1-a", "agent": "agent_1", "epoch": 3, "lease_live": True, "lease_age_s": 2.1,
                          **changes})


def deployment(**changes: Any) -> dict[str, Any]:
    return {"id": "us-east-1-a-glm", "model": "sim/glm-5.3", "fleet": "us-east-1-a", "phase": "ready", "generation": 4,
            "observed_generation": 4, "inflight": 12, "queued": 0, "message": "",
            "pools": [{"role": "prefill", "desired_replicas": 1, "ready_replicas": 1},
                      {"role": "decode", "desired_replicas": 2, "ready_replicas": 2}], **changes}


def datacenter(**changes: Any) -> DatacenterStatus:
    return DatacenterStatus(**{
        "id": "us-east-1", "region": "us-east-1", "traffic_state": "active", "weight": 100, "open_requests": 12,
        "fleets": [fleet()], "deployments": [deployment()], **changes})


def edge(**changes: Any) -> EdgeStatus:
    return EdgeStatus(**{"id": EDGE_ID, "region": "us-east-1", "live": True, "release": "0.1.0", "acked_version": 14,
                         "behind": 0, "nack": None, "last_seen_age_s": 1.0, "open_requests": {"us-east-1": 12},
                         **changes})


def view(**changes: Any) -> StatusView:
    return StatusView(**{"lineage": 1, "snapshot_version": 14, "datacenters": [datacenter()], "edges": [edge()],
                         "running_operations": [], "as_of": NOW, **changes})


def shown(meridian: Meridian, api: OperatorServer, status: StatusView) -> list[list[str]]:
    """The words of each line."""
    api.status = status
    ran = meridian("status")
    assert ran.code == 0
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    return [line.split() for line in ran.out.splitlines()]


def test_a_healthy_fleet_reads_at_a_glance(meridian: Meridian, api: OperatorServer) -> None:
    assert shown(meridian, api, view())[2:] == [
        ["DATACENTER", "TRAFFIC", "WEIGHT", "OPEN", "FLEET", "AGENT"],
        ["us-east-1", "active", "100", "12", "us-east-1-a", "live,", "2.1s", "ago"],
        [],
        ["MODEL", "FLEET", "PHASE", "PREFILL", "DECODE", "RUNNING", "QUEUED", "CONTINUES"],
        ["sim/glm-5.3", "us-east-1-a", "ready", "1/1", "2/2", "12", "0", "none"],
        [],
        ["EDGE", "REGION", "STATE", "SNAPSHOT", "OPEN", "SEEN"],
        ["edge_…adbeef", "us-east-1", "live", "14", "12", "1.0s", "ago"],
    ]


def test_streams_that_would_end_for_want_of_a_grammar_service_are_told_of(
        meridian: Meridian, api: OperatorServer) -> None:
    for continuation, is_told in (("none", False), ("plain", True), ("all", False)):
        deployments = [deployment(continuation=continuation)]
        lines = shown(meridian, api, view(datacenters=[datacenter(deployments=deployments)]))
        assert [line[-1] for line in lines if line[:1] == ["sim/glm-5.3"]] == [continuation]
        assert any("grammar" in line for line in lines) is is_told


def test_the_heading_says_which_snapshot_and_when(meridian: Meridian, api: OperatorServer) -> None:
    assert shown(meridian, api, view())[0][:2] == ["Snapshot", "14,"]
    assert shown(meridian, api, view(lineage=2))[0][:5] == ["Snapshot", "14", "of", "lineage", "2,"]


def test_an_empty_fleet_says_how_to_begin(meridian: Meridian, api: OperatorServer) -> None:
    words = shown(meridian, api, view(datacenters=[], edges=[]))
    assert words[2] == ["No", "datacenters", "yet:", "meridian", "topology", "apply", "-f", "FILE"]


def test_what_nobody_observed_is_a_dash_and_not_zero(meridian: Meridian, api: OperatorServer) -> None:
    unknown = deployment(inflight=None, queued=None, pools=[
        {"role": "prefill", "desired_replicas": 1, "ready_replicas": None}])
    words = shown(meridian, api, view(datacenters=[datacenter(open_requests=None, deployments=[unknown])]))
    assert words[3][3] == "–"  # noqa: RUF001
    assert words[6][3:7] == ["–/1", "-", "–", "–"]  # noqa: RUF001


@pytest.mark.parametrize(("inflight", "queued", "told"), [
    (12, 5, ["7", "5"]), (3, 3, ["0", "3"]), (2, 3, ["0", "3"])])
def test_what_waits_for_its_first_token_does_not_run(
        meridian: Meridian, api: OperatorServer, inflight: int, queued: int, told: list[str]) -> None:
    busy = deployment(inflight=inflight, queued=queued)
    assert shown(meridian, api, view(datacenters=[datacenter(deployments=[busy])]))[6][5:7] == told


def test_an_agent_that_is_away_is_told_from_one_never_seen(meridian: Meridian, api: OperatorServer) -> None:
    fleets = [fleet(lease_live=False, lease_age_s=75.0), fleet(id="us-east-1-b", lease_live=False, lease_age_s=None)]
    words = shown(meridian, api, view(datacenters=[datacenter(fleets=fleets)]))
    assert words[3][5:] == ["away,", "1m", "15s", "ago"]
    assert words[4] == ["us-east-1-b", "never", "seen"]


def test_what_an_agent_that_is_away_last_said_is_not_shown_as_true_now(meridian: Meridian, api: OperatorServer) -> None:
    left = fleet(lease_live=False, lease_age_s=7_200.0)
    words = shown(meridian, api, view(datacenters=[datacenter(fleets=[left])]))
    assert words[6][:4] == ["sim/glm-5.3", "us-east-1-a", "was", "ready"]
    said = " ".join(word for line in words[7:10] for word in line)
    assert said.startswith("us-east-1-a: its agent was last heard 2h ago; what is shown is as of then, and safety")


def test_a_fleet_that_was_never_seen_needs_no_excuse(meridian: Meridian, api: OperatorServer) -> None:
    new = fleet(lease_live=False, lease_age_s=None, agent=None, epoch=None)
    pending = deployment(phase="pending", observed_generation=None, message="never observed")
    words = shown(meridian, api, view(datacenters=[datacenter(fleets=[new], deployments=[pending])]))
    assert words[6][2] == "pending"
    assert words[7] == ["us-east-1-a-glm:", "never", "observed"]


def test_a_datacenter_without_a_fleet_says_so(meridian: Meridian, api: OperatorServer) -> None:
    assert shown(meridian, api, view(datacenters=[datacenter(fleets=[])]))[3][4:] == ["none"]


def test_a_deployment_behind_its_generation_says_how_far(meridian: Meridian, api: OperatorServer) -> None:
    words = shown(meridian, api, view(datacenters=[datacenter(deployments=[deployment(observed_generation=3)])]))
    assert words[6][2:6] == ["gen", "3", "of", "4"]


def test_what_is_wrong_with_a_deployment_stands_below(meridian: Meridian, api: OperatorServer) -> None:
    ill = deployment(phase="degraded", message="decode-1 exited with 137")
    words = shown(meridian, api, view(datacenters=[datacenter(deployments=[ill])]))
    assert words[7] == ["us-east-1-a-glm:", "decode-1", "exited", "with", "137"]


@pytest.mark.parametrize(("changes", "state"), [
    ({"live": False}, ["away"]), ({"behind": 2}, ["behind", "by", "2"]), ({"nack": "malformed"}, ["refuses"])])
def test_an_edge_that_is_not_well_says_why(meridian: Meridian, api: OperatorServer, changes: dict[str, Any],
                                           state: list[str]) -> None:
    words = shown(meridian, api, view(edges=[edge(**changes)]))
    assert words[9][2:2 + len(state)] == state


def test_why_an_edge_refuses_stands_below(meridian: Meridian, api: OperatorServer) -> None:
    words = shown(meridian, api, view(edges=[edge(nack="signed by an unknown key")]))
    assert words[10] == ["edge_…adbeef", "refuses", "the", "snapshot:", "signed", "by", "an", "unknown", "key"]


def test_what_is_under_way_is_shown_with_its_step(meridian: Meridian, api: OperatorServer) -> None:
    done = StepView(seq=1, name="stop", state=StepState.DONE, detail="", started_at=NOW, finished_at=NOW)
    running = StepView(seq=2, name="wait", state=StepState.RUNNING, detail="3 open", started_at=NOW, finished_at=None)
    operation = OperationView(
        id="op_019ac7aa0000700080000000deadbeef", kind="drain", subject="us-east-1", datacenter="us-east-1",
        automatic=False, paused=None, state="running", reason="test",
        requested_by="optok_1", forced=False, created_at=NOW, finished_at=None, deadline_at=NOW, error=None,
        steps=[done, running])
    words = shown(meridian, api, view(running_operations=[operation]))
    assert words[12][:3] == ["op_019ac7aa0000700080000000deadbeef", "drain", "us-east-1"]
    assert [word for line in words[12:] for word in line][3:] == ["step", "2", "of", "2,", "wait:", "3", "open"]


def test_in_json_nothing_is_left_out(meridian: Meridian, api: OperatorServer) -> None:
    api.status = view()
    assert StatusView.model_validate_json(meridian("status", "-o", "json").out) == view()


def test_in_plain_there_is_no_colour_and_a_tab_between(meridian: Meridian, api: OperatorServer) -> None:
    api.status = view()
    assert meridian("status", "-o", "plain").out.splitlines()[1].split("\t")[:2] == ["us-east-1", "active"]
