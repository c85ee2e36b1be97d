"""Where the control plane and the edge are found, and that secrets only go where they belong."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from control_plane.cli.errors import StackNotFound, UsageFault
from control_plane.cli.settings import Settings
from control_plane.cli.stack import control_plane_access, edge_access
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import API_KEY, TOKEN


def settings(state: Path, **values: str) -> Settings:
    secrets = {name: SecretStr(values.pop(name)) for name in ("operator_token", "api_key") if name in values}
    return Settings(state=state, **values, **secrets)  # type: ignore[arg-type]


def test_the_local_file_names_every_replica(nowhere: Meridian) -> None:
    nowhere.point_at(["http://127.0.0.1:1", "http://127.0.0.1:2/"])
    access = control_plane_access(settings(nowhere.state))
    assert access.urls == ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    assert access.token == TOKEN


def test_a_file_with_a_single_address_will_do(nowhere: Meridian) -> None:
    (nowhere.state / "local.json").write_text('{"control_plane_url": "http://127.0.0.1:1", "operator_token": "t"}')
    assert control_plane_access(settings(nowhere.state)).urls == ["http://127.0.0.1:1"]


def test_the_environment_wins_over_the_file(nowhere: Meridian) -> None:
    nowhere.point_at(["http://127.0.0.1:1"])
    access = control_plane_access(settings(nowhere.state, control_plane_url="http://a, http://b/", operator_token="t"))
    assert (access.urls, access.token) == (["http://a", "http://b"], "t")


def test_a_token_from_the_environment_may_go_to_the_local_stack(nowhere: Meridian) -> None:
    nowhere.point_at(["http://127.0.0.1:1"])
    assert control_plane_access(settings(nowhere.state, operator_token="mine")).token == "mine"


def test_the_local_token_is_never_sent_to_an_address_from_the_environment(nowhere: Meridian) -> None:
    nowhere.point_at(["http://127.0.0.1:1"])
    with pytest.raises(UsageFault, match="without MERIDIAN_OPERATOR_TOKEN"):
        control_plane_access(settings(nowhere.state, control_plane_url="http://elsewhere"))


def test_the_local_key_is_never_sent_to_an_edge_from_the_environment(nowhere: Meridian) -> None:
    nowhere.point_at([], "http://127.0.0.1:1/v1")
    with pytest.raises(UsageFault, match="without MERIDIAN_API_KEY"):
        edge_access(settings(nowhere.state, edge_url="http://elsewhere/v1"))


def test_the_edge_comes_from_the_file_with_key_and_model(nowhere: Meridian) -> None:
    nowhere.point_at([], "http://127.0.0.1:1/v1/")
    access = edge_access(settings(nowhere.state))
    assert (access.url, access.api_key, access.model) == ("http://127.0.0.1:1/v1", API_KEY, "sim/glm-5.3")


def test_a_model_from_the_environment_wins(nowhere: Meridian) -> None:
    nowhere.point_at([], "http://127.0.0.1:1/v1")
    assert edge_access(settings(nowhere.state, model="other")).model == "other"


@pytest.mark.parametrize(("text", "said"), [
    ("{", "is damaged"), ("[]", "is damaged"), ("{}", "names no control plane")])
def test_a_file_of_no_use_is_said_so(nowhere: Meridian, text: str, said: str) -> None:
    (nowhere.state / "local.json").write_text(text)
    with pytest.raises(StackNotFound, match=said):
        control_plane_access(settings(nowhere.state))


def test_a_file_without_an_edge_is_said_so(nowhere: Meridian) -> None:
    (nowhere.state / "local.json").write_text("{}")
    with pytest.raises(StackNotFound, match="names no edge"):
        edge_access(settings(nowhere.state))


def test_a_file_that_cannot_be_read_is_said_so(nowhere: Meridian) -> None:
    (nowhere.state / "local.json").mkdir()
    with pytest.raises(StackNotFound, match=r"cannot read .*local\.json"):
        control_plane_access(settings(nowhere.state))
