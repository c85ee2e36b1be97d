"""What machines forget when the control plane's database was lost."""

from decimal import Decimal
from pathlib import Path

import pytest

from control_plane.contracts.clock import SystemClock, utc
from control_plane.contracts.operator import DatacenterStatus, FleetStatus, StatusView
from control_plane.contracts.pricing import Price
from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import SignedSnapshot, Snapshot, SnapshotModel, TrafficState
from infra.local.history import forget_lost
from infra.local.layout import Layout
from infra.local.shape import Shape, fleet_id

SHAPE = Shape(8700, datacenter_count=2, edge_count=2, replica_count=1, engine="sim")
PRICE = Price(version="p", input_usd=Decimal(1), cached_input_usd=Decimal(1), output_usd=Decimal(1))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Every machine remembers something: the edges snapshot 1.9, the agents an epoch."""
    layout = Layout(tmp_path)
    model = SnapshotModel(id="m", display_name="m", created_s=1, owned_by="m", context_window=1, max_output_tokens=1,
                          price=PRICE, routes=[], unroutable_reason="none")
    signed = SignedSnapshot.seal(
        Snapshot(lineage=1, version=9, built_at_s=0, datacenters=[], models=[model]), SigningKey.generate())
    for index in range(SHAPE.edge_count):
        directory = layout.edge(index)
        (directory / "outbox").mkdir(parents=True)
        (directory / "snapshot.json").write_text(signed.model_dump_json())
        (directory / "keys.json").write_text("{}")
        (directory / "identity.json").write_text("{}")
    for name in SHAPE.datacenters:
        layout.agent(name).mkdir(parents=True)
        for file in ("agent.sqlite", "agent.sqlite-wal", "identity.json"):
            (layout.agent(name) / file).write_text("")
    return layout


def view(lineage: int, version: int, leased: tuple[str, ...] = SHAPE.datacenters) -> StatusView:
    return StatusView(lineage=lineage, snapshot_version=version, edges=[], running_operations=[],
                      as_of=utc(SystemClock().time_s()), datacenters=[
        DatacenterStatus(
            id=name, region=name, traffic_state=TrafficState.ACTIVE, weight=1, open_requests=None, deployments=[],
            fleets=[FleetStatus(id=fleet_id(name), agent=None, epoch=None, lease_live=False,
                                lease_age_s=9.0 if name in leased else None)])
        for name in SHAPE.datacenters])


@pytest.mark.parametrize("newest", [(1, 9), (1, 12), (2, 1)])
def test_a_control_plane_that_remembers_too_makes_nobody_forget(layout: Layout, newest: tuple[int, int]) -> None:
    assert forget_lost(layout, SHAPE, view(*newest)) == []
    assert (layout.edge(0) / "snapshot.json").exists()
    assert (layout.agent("us-east-1") / "agent.sqlite").exists()


def test_edges_forget_versions_that_never_were_and_keep_who_they_are_and_their_usage(layout: Layout) -> None:
    assert forget_lost(layout, SHAPE, view(1, 2)) == ["edge 0", "edge 1"]
    assert sorted(path.name for path in layout.edge(1).iterdir()) == ["identity.json", "outbox"]


def test_an_agent_forgets_epochs_of_a_fleet_that_was_never_leased(layout: Layout) -> None:
    assert forget_lost(layout, SHAPE, view(1, 9, leased=("eu-north-1",))) == ["agent of us-east-1"]
    assert [path.name for path in layout.agent("us-east-1").iterdir()] == ["identity.json"]


def test_a_first_start_has_nothing_to_forget(tmp_path: Path) -> None:
    assert forget_lost(Layout(tmp_path), SHAPE, view(1, 1, leased=())) == []


def test_a_damaged_snapshot_is_the_edges_own_affair(layout: Layout) -> None:
    (layout.edge(0) / "snapshot.json").write_text("{")
    assert forget_lost(layout, SHAPE, view(1, 2)) == ["edge 1"]
    assert (layout.edge(0) / "snapshot.json").exists()
