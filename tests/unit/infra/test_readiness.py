"""When a datacenter may be called ready, told from what the control plane says of it."""

from datetime import UTC, datetime

import pytest

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.operator import DatacenterStatus, DeploymentStatus, FleetStatus, StatusView
from control_plane.contracts.snapshot import TrafficState
from infra.local.readiness import lease_epoch, unready


def status(epoch: int | None = 2, phase: DeploymentPhase = DeploymentPhase.READY, observed: int | None = 1,
           message: str = "", deployment: str = "us-east-1-a-glm") -> StatusView:
    return StatusView(
        lineage=1, snapshot_version=1, edges=[], running_operations=[], as_of=datetime(2026, 1, 1, tzinfo=UTC),
        datacenters=[DatacenterStatus(
            id="us-east-1", region="us-east-1", traffic_state=TrafficState.ACTIVE, weight=100, open_requests=0,
            fleets=[FleetStatus(id="us-east-1-a", agent="agent_1", epoch=epoch, lease_live=True, lease_age_s=1.0)],
            deployments=[DeploymentStatus(
                id=deployment, model="sim/glm-5.3", fleet="us-east-1-a", phase=phase, generation=1,
                observed_generation=observed, pools=[], inflight=0, queued=0, message=message)],
        )],
    )  # fmt: skip


def test_a_deployment_that_the_new_agent_calls_ready_is_ready() -> None:
    assert unready(status(epoch=2), "us-east-1", epoch_before=1) == ""


def test_what_the_last_agent_said_does_not_count() -> None:
    assert unready(status(epoch=2), "us-east-1", epoch_before=2) == "its agent has not reported yet"


def test_before_the_first_lease_nothing_is_ready() -> None:
    assert unready(status(epoch=None), "us-east-1", epoch_before=0) == "its agent has not reported yet"


@pytest.mark.parametrize("phase", [DeploymentPhase.PENDING, DeploymentPhase.PROVISIONING, DeploymentPhase.DEGRADED])
def test_any_other_phase_is_named_with_its_message(phase: DeploymentPhase) -> None:
    view = status(phase=phase, message="1 of 2 decode workers")
    assert unready(view, "us-east-1", 0) == f"its deployment is {phase}, 1 of 2 decode workers"


def test_an_older_generation_is_not_what_was_asked_for() -> None:
    assert unready(status(observed=0), "us-east-1", 0) == "its deployment is ready"


def test_a_deployment_that_was_never_declared_is_unknown() -> None:
    assert "unknown" in unready(status(deployment="us-east-1-a-other"), "us-east-1", 0)


def test_a_datacenter_that_nobody_knows_has_no_lease() -> None:
    assert lease_epoch(status(), "eu-north-1") == 0
    assert lease_epoch(status(epoch=7), "us-east-1") == 7
