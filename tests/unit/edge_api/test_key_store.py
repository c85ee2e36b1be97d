"""The key cache on disk."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from control_plane.contracts.keys import Principal, Scope
from edge_api.key_store import KeyStore, StoredKeys

PRINCIPAL = Principal(key_id="key_1", team_id="team_1", key_name="test", scopes=[Scope.INFERENCE])


def test_stored_keys_come_back(tmp_path: Path) -> None:
    stored = StoredKeys(revocations_after=7, revoked=["r"], keys={"d": PRINCIPAL})
    store = KeyStore(tmp_path / "keys.json")
    store.save(stored)
    assert store.load() == stored
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"keys": {"d": {}}}', b"\xff\xfe"])
def test_unreadable_keys_are_a_log_line_and_no_keys(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "keys.json").write_bytes(content)
    with capture_logs() as logs:
        assert KeyStore(tmp_path / "keys.json").load() == StoredKeys()
    assert [line["event"] for line in logs] == ["stored_keys_unreadable"]
