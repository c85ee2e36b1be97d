"""The control plane's settings."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from control_plane.settings import Settings

URL = "postgresql+asyncpg://meridian:secret@127.0.0.1:5432/meridian"


def test_they_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERIDIAN_DATABASE_URL", URL)
    monkeypatch.setenv("MERIDIAN_SIGNING_KEY_FILE", "/keys/snapshot")
    monkeypatch.setenv("MERIDIAN_PORT", "9000")
    settings = Settings()
    assert (settings.database_url, settings.signing_key_file, settings.port) == (URL, Path("/keys/snapshot"), 9000)


@pytest.mark.parametrize("changes", [
    {"database_url": "postgresql://127.0.0.1/x"}, {"database_url": "sqlite://"}, {"identity_cache_s": 6},
    {"environment": "with_underscore"}, {"port": 70_000}, {"max_body_bytes": 0}])
def test_what_cannot_work_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings(**({"database_url": URL, "signing_key_file": Path("key")} | changes))


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
