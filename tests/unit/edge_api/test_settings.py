"""Settings from the environment."""


import pytest
from pydantic import ValidationError

from edge_api.settings import Settings


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERIDIAN_CONTROL_PLANE_URLS", "http://a:1/, http://b:2 ,")
    monkeypatch.setenv("MERIDIAN_STATE_DIR", "/var/lib/meridian")
    settings = Settings()  # type: ignore[call-arg]
    assert settings.control_plane_urls == ["http://a:1", "http://b:2"]
    assert settings.max_body_bytes == 32 << 20


@pytest.mark.parametrize(("name", "value"), [
    ("CONTROL_PLANE_URLS", ""), ("PORT", "70000"), ("OUTBOX_MAX_BYTES", "1"), ("KEEP_ALIVE_S", "soon")])
def test_impossible_settings_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv("MERIDIAN_CONTROL_PLANE_URLS", "http://a:1")
    monkeypatch.setenv("MERIDIAN_STATE_DIR", "/var/lib/meridian")
    monkeypatch.setenv(f"MERIDIAN_{name}", value)
    with pytest.raises(ValidationError):
        Settings()  # type: ignore[call-arg]


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
