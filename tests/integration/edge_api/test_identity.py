"""Enrolment: once, whatever is in the way, and never again."""

import asyncio
from pathlib import Path

import pytest

from control_plane.contracts.clock import SystemClock
from control_plane.contracts.transport import ControlPlaneAway, ControlPlaneClient
from edge_api import identity
from edge_api.identity import ControlPlaneLink, EnrolmentRefused, enrol, enrol_until_done
from tests.integration.edge_api.control_plane import IDENTITY, REGION, TOKEN, ControlPlane, free_port, serving
from tests.integration.edge_api.waiting import until


async def test_an_enrolled_edge_signs_as_its_identity(link: ControlPlaneLink, control_plane: ControlPlane) -> None:
    assert (await link.post("/edge/v1/keys/lookup", b'{"digest":"nobody"}', 5)).status_code == 404
    assert link.identity is not None
    assert (link.identity.name, link.identity.region, link.problem) == (IDENTITY, REGION, "")


async def test_an_identity_is_remembered_with_the_control_planes_keys(
        link: ControlPlaneLink, control_plane: ControlPlane, tmp_path: Path) -> None:
    loaded = identity.load(tmp_path / "state")
    assert loaded is not None
    assert (loaded.name, loaded.key.public.text) == (IDENTITY, control_plane.identities[IDENTITY].text)
    assert [key.text for key in loaded.control_plane_keys] == [control_plane.key.public.text]


async def test_key_and_identity_are_private_files(link: ControlPlaneLink, tmp_path: Path) -> None:
    for name in ("identity.key", "identity.json"):
        assert (tmp_path / "state" / name).stat().st_mode & 0o777 == 0o600


def test_an_edge_that_never_enrolled_has_no_identity(tmp_path: Path) -> None:
    assert identity.load(tmp_path) is None


def test_a_damaged_identity_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("{}")
    with pytest.raises(ValueError, match="enrol again"):
        identity.load(tmp_path)


async def test_without_an_identity_nothing_gets_through_and_the_reason_is_said() -> None:
    with pytest.raises(ControlPlaneAway, match="not enrolled yet"):
        await ControlPlaneLink(["http://127.0.0.1:1"], SystemClock()).post("/edge/v1/sync", b"", 1)


async def test_a_wrong_token_is_refused_and_names_the_status(control_plane: ControlPlane, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("enrol_meridian_other_token")
    async with ControlPlaneClient([control_plane.url]) as client:
        with pytest.raises(EnrolmentRefused, match="HTTP 401"):
            await enrol(client, tmp_path / "state", wrong)
    assert identity.load(tmp_path / "state") is None


@pytest.mark.parametrize("token_file", [None, Path("/nonexistent/token")])
async def test_a_missing_token_says_what_to_do(token_file: Path | None, tmp_path: Path) -> None:
    async with ControlPlaneClient(["http://127.0.0.1:1"]) as client:
        with pytest.raises(EnrolmentRefused, match="enrolment token"):
            await enrol(client, tmp_path, token_file)


async def test_enrolment_waits_for_a_control_plane_that_comes_later(tmp_path: Path, token_file: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    link = ControlPlaneLink([url], SystemClock())
    enrolling = asyncio.create_task(enrol_until_done(link, tmp_path / "state", token_file, [url]))
    await until(lambda: "ConnectError" in link.problem)
    async with serving(ControlPlane(), port):
        await asyncio.wait_for(enrolling, 10)
    assert link.identity is not None
    await link.aclose()


async def test_a_token_that_is_put_right_is_read_again(
        control_plane: ControlPlane, tmp_path: Path, token_file: Path) -> None:
    await asyncio.to_thread(token_file.write_text, "wrong")
    link = ControlPlaneLink([control_plane.url], SystemClock())
    enrolling = asyncio.create_task(enrol_until_done(link, tmp_path / "state", token_file, [control_plane.url]))
    await until(lambda: "refused" in link.problem)
    await asyncio.to_thread(token_file.write_text, TOKEN)
    await asyncio.wait_for(enrolling, 10)
    await link.aclose()


async def test_an_answer_that_was_lost_is_asked_for_again_with_the_same_key(
        control_plane: ControlPlane, tmp_path: Path, token_file: Path) -> None:
    async with ControlPlaneClient([control_plane.url]) as client:
        first = await enrol(client, tmp_path / "state", token_file)
        (tmp_path / "state" / "identity.json").unlink()
        second = await enrol(client, tmp_path / "state", token_file)
    assert first.key.public.text == second.key.public.text
