"""Settings from the environment."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from fleet_agent.settings import Settings

REQUIRED = {
    "MERIDIAN_PORT": "8802", "MERIDIAN_CONTROL_PLANE_URLS": "http://127.0.0.1:8710", "MERIDIAN_STATE_DIR": "state",
    "MERIDIAN_ENGINE_PORT_BASE": "8800", "MERIDIAN_ENGINE_STATE_DIR": "engine"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in REQUIRED.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_the_defaults_leave_the_engine_serving(environment: pytest.MonkeyPatch) -> None:
    settings = Settings()
    assert (settings.port, settings.stop_engine_on_exit, settings.stop_grace_s) == (8802, False, 5.0)


def test_urls_are_split_at_commas(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MERIDIAN_CONTROL_PLANE_URLS", "http://a:1/, http://b:2,")
    assert Settings().control_plane_urls == ["http://a:1", "http://b:2"]


def test_the_plan_command_is_the_engines(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MERIDIAN_ENGINE_PYTHON", "/engine/bin/python")
    assert Settings().plan_command == ["/engine/bin/python", "-m", "engine", "plan"]


def test_the_plan_command_may_be_another(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MERIDIAN_ENGINE_PLAN_COMMAND", '["plan-it", "now"]')
    assert Settings().plan_command == ["plan-it", "now"]


@pytest.mark.parametrize(("name", "value"), [
    ("MERIDIAN_CONTROL_PLANE_URLS", " , "), ("MERIDIAN_PORT", "99999"), ("MERIDIAN_ENGINE_PORT_BASE", "65500"),
    ("MERIDIAN_STOP_GRACE_S", "-1")])
def test_a_value_that_cannot_be_is_refused(environment: pytest.MonkeyPatch, name: str, value: str) -> None:
    environment.setenv(name, value)
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_what_has_no_default_must_be_set(environment: pytest.MonkeyPatch, name: str) -> None:
    environment.delenv(name)
    with pytest.raises(ValidationError):
        Settings()


def test_the_state_directory_is_a_path(environment: pytest.MonkeyPatch) -> None:
    assert Settings().state_dir == Path("state")
