"""The last good snapshot on disk."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import SignedSnapshot
from edge_api.snapshot.store import SnapshotStore
from tests.unit.edge_api.builders import snapshot


def test_a_stored_snapshot_comes_back_verified(tmp_path: Path) -> None:
    key, store = SigningKey.generate(), SnapshotStore(tmp_path / "snapshot.json")
    assert store.load([key.public]) is None
    store.save(SignedSnapshot.seal(snapshot(version=4), key))
    assert store.load([key.public]) == snapshot(version=4)


@pytest.mark.parametrize("damage", [
    lambda text: text.replace('\\"weight\\":100', '\\"weight\\":101'),
    lambda text: text[:-20],
    lambda text: "",
])
def test_a_stored_snapshot_that_was_changed_is_not_used(tmp_path: Path, damage: object) -> None:
    key, path = SigningKey.generate(), tmp_path / "snapshot.json"
    SnapshotStore(path).save(SignedSnapshot.seal(snapshot(), key))
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    with capture_logs() as logs:
        assert SnapshotStore(path).load([key.public]) is None
    assert [line["event"] for line in logs] == ["stored_snapshot_refused"]


def test_a_stored_snapshot_of_another_signer_is_not_used(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "snapshot.json")
    store.save(SignedSnapshot.seal(snapshot(), SigningKey.generate()))
    assert store.load([SigningKey.generate().public]) is None
