"""An edge before a control plane whose database is an older copy: it refuses, then follows the new lineage whole."""

from pathlib import Path

import pytest

from control_plane.contracts.clock import SystemClock
from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import OperatorKey
from edge_api.auth import Keyring
from edge_api.identity import ControlPlaneLink
from edge_api.key_store import KeyStore
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.override.board import Overrides
from edge_api.override.store import OrderStore
from edge_api.snapshot.client import SyncClient
from edge_api.snapshot.holder import TableHolder
from edge_api.snapshot.store import SnapshotStore
from tests.integration.edge_api.control_plane import IDENTITY, ControlPlane, principal
from tests.integration.edge_api.test_keyring import CLIENT, DIGEST
from tests.unit.edge_api.builders import snapshot
from tests.unit.edge_api.override.orders import EAST, sealed

OTHER = "f" * 64


class Following:
    """An edge's sync, and how often it was told that a lineage began."""

    def __init__(self, link: ControlPlaneLink, directory: Path, metrics: Metrics) -> None:
        self.holder, self.began = TableHolder(), 0
        self.path, self._link, self._metrics = directory / "keys.json", link, metrics
        self.keyring = self.new_keyring()
        clock = SystemClock()
        self.overrides = Overrides(
            self.holder, OrderStore(directory / "overrides.json"), clock, metrics.registry, lambda: IDENTITY)
        self.client = SyncClient(
            link, self.holder, SnapshotStore(directory / "snapshot.json"), self.keyring, OpenRequests(), "boot_1", 0.1,
            metrics, overrides=self.overrides, override_url="http://10.0.0.1:8700", on_lineage=self._begin)

    def new_keyring(self) -> Keyring:
        made = Keyring(self._link, KeyStore(self.path), SystemClock(), self._metrics, 100, 60)
        made.restore()
        return made

    def _begin(self) -> None:
        self.began += 1


@pytest.fixture
async def edge(link: ControlPlaneLink, control_plane: ControlPlane, tmp_path: Path,
               metrics: Metrics) -> Following:
    """An edge at version 9 that has seen two revocations and knows a key."""
    made = Following(link, tmp_path / "state", metrics)
    control_plane.publish(snapshot(version=9))
    await made.client.poll_once()
    assert await made.keyring.find(DIGEST, CLIENT) == principal()
    control_plane.revoke(OTHER)
    control_plane.revoke(DIGEST)
    await made.client.poll_once()
    assert made.keyring.revocations_after == 2
    return made


def restore(control_plane: ControlPlane) -> None:
    """The control plane as it was before both revocations."""
    control_plane.revocations.clear()
    control_plane.principals[DIGEST] = principal()


async def test_an_older_copy_is_refused_as_long_as_it_is_of_the_same_lineage(
        edge: Following, control_plane: ControlPlane) -> None:
    restore(control_plane)
    control_plane.publish(snapshot(version=4))
    await edge.client.poll_once()
    assert edge.holder.snapshot == snapshot(version=9)
    assert "not newer" in edge.client.problem
    assert edge.began == 0


async def test_a_new_lineage_is_followed_and_told_once(edge: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(lineage=2, version=4))
    await edge.client.poll_once()
    control_plane.publish(snapshot(lineage=2, version=5))
    await edge.client.poll_once()
    assert (edge.holder.snapshot, edge.began) == (snapshot(lineage=2, version=5), 1)


async def test_a_first_snapshot_begins_nothing(link: ControlPlaneLink, control_plane: ControlPlane, tmp_path: Path,
                                               metrics: Metrics) -> None:
    made = Following(link, tmp_path / "state", metrics)
    control_plane.publish(snapshot(lineage=3, version=1))
    await made.client.poll_once()
    assert (made.began, made.keyring.untold(10)) == (0, [])


async def test_revocations_of_the_new_lineage_are_heard_though_their_numbers_begin_anew(
        edge: Following, control_plane: ControlPlane) -> None:
    restore(control_plane)
    control_plane.publish(snapshot(lineage=2, version=4))
    await edge.client.poll_once()
    control_plane.revoke("e" * 64)
    await edge.client.poll_once()
    assert edge.keyring.revocations_after == 1
    assert await edge.keyring.find("e" * 64, CLIENT) is None


async def test_a_key_that_ended_stays_ended_though_the_copy_has_it(
        edge: Following, control_plane: ControlPlane) -> None:
    restore(control_plane)
    control_plane.publish(snapshot(lineage=2, version=4))
    await edge.client.poll_once()
    assert await edge.keyring.find(DIGEST, CLIENT) is None


async def test_the_control_plane_is_told_once_which_keys_ended(edge: Following, control_plane: ControlPlane) -> None:
    restore(control_plane)
    control_plane.publish(snapshot(lineage=2, version=4))
    for _ in range(3):
        await edge.client.poll_once()
    told = [sync.ended_keys for sync in control_plane.syncs if sync.ended_keys]
    assert [sorted(keys) for keys in told] == [sorted([OTHER, DIGEST])]


async def test_a_restart_before_the_keys_were_stored_begins_anew_all_the_same(
        edge: Following, control_plane: ControlPlane) -> None:
    await edge.keyring.save()
    stored = edge.new_keyring()
    stored.follow(2)
    assert (stored.revocations_after, sorted(stored.untold(10))) == (0, sorted([OTHER, DIGEST]))


async def test_a_restart_in_the_same_lineage_goes_on_where_it_was(edge: Following) -> None:
    await edge.keyring.save()
    stored = edge.new_keyring()
    stored.follow(1)
    assert (stored.revocations_after, stored.untold(10)) == (2, [])


async def test_orders_are_reported_until_the_control_plane_has_them(
        edge: Following, control_plane: ControlPlane) -> None:
    key = SigningKey.generate()
    known = OperatorKey(key_id=key.public.key_id, public_key=key.public.text, name="olga")
    control_plane.publish(snapshot(version=10).model_copy(update={"operator_keys": [known]}))
    await edge.client.poll_once()
    await edge.overrides.take(sealed(key, edge=IDENTITY, issued_at_s=SystemClock().time_s()))
    await edge.client.poll_once()
    last = control_plane.syncs[-1]
    assert [(report.view.datacenter, report.view.state) for report in last.overrides] == [(EAST, "in_force")]
    assert last.override_url == "http://10.0.0.1:8700"
    assert [held.is_reported for held in edge.overrides._held] == [False]
    await edge.overrides.reported([report.view.id for report in last.overrides])
    assert [held.is_reported for held in edge.overrides._held] == [True]
