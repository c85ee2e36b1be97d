"""Enrolment against a control plane that checks tokens."""

import asyncio
import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from control_plane.contracts import ids
from fleet_agent import identity
from fleet_agent.identity import CannotEnrol
from tests.integration.fleet_agent.fake_control_plane import FakeControlPlane


async def enrol(control_plane: FakeControlPlane, state_dir: Path, token: str | None = None) -> identity.EnrolAnswer:
    token_file = state_dir / "token"
    token_file.write_text((token or control_plane.token) + "\n")
    return await identity.enrol([control_plane.url], state_dir, identity.load_key(state_dir), token_file)


async def test_a_token_becomes_an_identity_that_stays(control_plane: FakeControlPlane, tmp_path: Path) -> None:
    given = await enrol(control_plane, tmp_path)
    assert (given.identity, given.subject) == ("identity_test", "test-a")
    assert identity.load_identity(tmp_path) == given


async def test_key_and_identity_are_for_this_user_only(control_plane: FakeControlPlane, tmp_path: Path) -> None:
    await enrol(control_plane, tmp_path)
    for name in ("agent.key", "identity.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


async def test_the_key_is_made_once(tmp_path: Path) -> None:
    assert identity.load_key(tmp_path).public.text == identity.load_key(tmp_path).public.text


async def test_a_lost_answer_does_no_harm(control_plane: FakeControlPlane, tmp_path: Path) -> None:
    first = await enrol(control_plane, tmp_path)
    (tmp_path / "identity.json").unlink()
    assert await enrol(control_plane, tmp_path) == first


async def test_a_spent_token_is_refused_for_another_key(control_plane: FakeControlPlane, tmp_path: Path) -> None:
    await enrol(control_plane, tmp_path)
    (tmp_path / "agent.key").unlink()
    with pytest.raises(CannotEnrol, match="refused the enrolment token with HTTP 403"):
        await enrol(control_plane, tmp_path)


async def test_a_foreign_token_is_refused_and_not_told(control_plane: FakeControlPlane, tmp_path: Path) -> None:
    token = ids.new_secret("enrol_meridian_test")
    with pytest.raises(CannotEnrol) as refused:
        await enrol(control_plane, tmp_path, token)
    assert token not in str(refused.value)
    assert identity.load_identity(tmp_path) is None


async def test_text_that_is_no_token_is_not_sent(control_plane: FakeControlPlane, tmp_path: Path) -> None:
    with pytest.raises(CannotEnrol, match="no well-formed enrolment token"):
        await enrol(control_plane, tmp_path, "a typo")


async def test_without_a_token_file_the_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotEnrol, match="MERIDIAN_ENROLMENT_TOKEN_FILE"):
        await identity.enrol([], tmp_path, identity.load_key(tmp_path), None)


async def test_a_token_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotEnrol, match="token cannot be read: No such file"):
        await identity.enrol([], tmp_path, identity.load_key(tmp_path), tmp_path / "token")


async def test_enrolment_waits_for_a_control_plane_that_is_away(
    control_plane: FakeControlPlane, tmp_path: Path
) -> None:
    control_plane.is_away = True
    enrolling = asyncio.create_task(enrol(control_plane, tmp_path))
    await asyncio.sleep(0.3)
    assert not enrolling.done()
    control_plane.is_away = False
    assert (await enrolling).subject == "test-a"


async def test_waiting_to_enrol_is_told_once(
    control_plane: FakeControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "RETRY_S", 0.02)
    control_plane.is_away = True
    with capture_logs() as logs:
        enrolling = asyncio.create_task(enrol(control_plane, tmp_path))
        await asyncio.sleep(0.5)
        control_plane.is_away = False
        await enrolling
    assert [line["event"] for line in logs] == ["enrolment_waits"]


async def test_a_damaged_identity_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("{}")
    with pytest.raises(CannotEnrol, match=r"identity\.json is damaged"):
        identity.load_identity(tmp_path)


async def test_before_enrolment_there_is_no_identity(tmp_path: Path) -> None:
    assert identity.load_identity(tmp_path) is None
