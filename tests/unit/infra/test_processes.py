"""How each process of a stack is run."""

from pathlib import Path

import pytest

from edge_api.settings import Settings
from infra.local import processes
from infra.local.child import ProcessSpec
from infra.local.layout import Layout, Secrets
from infra.local.shape import Shape

LAYOUT = Layout(Path("/srv/state"))
SHAPE = Shape(8700, datacenter_count=2, edge_count=2, replica_count=2, engine="sim")
SECRETS = Secrets(postgres_superuser="super", postgres_role="role", valkey="vk")


def all_specs() -> list[ProcessSpec]:
    return [
        processes.control_plane(LAYOUT, SHAPE, SECRETS, 0),
        processes.control_plane(LAYOUT, SHAPE, SECRETS, 1),
        processes.worker(LAYOUT, SHAPE, SECRETS),
        processes.bootstrap(LAYOUT, SHAPE, SECRETS),
        processes.agent(LAYOUT, SHAPE, 0),
        processes.agent(LAYOUT, SHAPE, 1),
        processes.edge(LAYOUT, SHAPE, SECRETS, 0),
        processes.edge(LAYOUT, SHAPE, SECRETS, 1),
    ]


def test_every_process_has_a_name_and_a_log_of_its_own() -> None:
    specs = all_specs()
    assert len({spec.name for spec in specs}) == len(specs)
    assert {spec.log_path for spec in specs} == {LAYOUT.log(spec.name) for spec in specs}


def test_every_process_can_be_told_by_a_state_directory_inside_ours() -> None:
    for spec in all_specs():
        assert Path(spec.env["MERIDIAN_STATE_DIR"]).is_relative_to(LAYOUT.state)


def test_no_secret_is_an_argument() -> None:
    for spec in all_specs():
        assert not {"super", "role", "vk"} & set(spec.argv)


def test_the_superuser_password_is_nobodys_setting() -> None:
    for spec in all_specs():
        assert not any("super" in value for value in spec.env.values())


def test_control_planes_share_everything_but_the_port() -> None:
    first, second = (processes.control_plane(LAYOUT, SHAPE, SECRETS, index).env for index in (0, 1))
    assert (first.pop("MERIDIAN_PORT"), second.pop("MERIDIAN_PORT")) == ("8710", "8711")
    assert first == second
    assert first["MERIDIAN_DATABASE_URL"] == "postgresql+asyncpg://meridian:role@127.0.0.1:8720/meridian"
    assert first["MERIDIAN_REDIS_URL"] == "redis://:vk@127.0.0.1:8721/0"


def test_an_agent_knows_its_ports_and_both_control_planes() -> None:
    env = processes.agent(LAYOUT, SHAPE, 1).env
    assert env["MERIDIAN_PORT"] == "8902"
    assert env["MERIDIAN_ENGINE_PORT_BASE"] == "8900"
    assert env["MERIDIAN_CONTROL_PLANE_URLS"] == "http://127.0.0.1:8710,http://127.0.0.1:8711"
    assert env["MERIDIAN_STOP_ENGINE_ON_EXIT"] == "true"


def test_agents_share_no_directory() -> None:
    first, second = (processes.agent(LAYOUT, SHAPE, index).env for index in (0, 1))
    for name in ("MERIDIAN_STATE_DIR", "MERIDIAN_ENGINE_STATE_DIR", "MERIDIAN_ENROLMENT_TOKEN_FILE"):
        assert first[name] != second[name]


def test_machines_get_no_database() -> None:
    for spec in (processes.agent(LAYOUT, SHAPE, 0), processes.edge(LAYOUT, SHAPE, SECRETS, 0)):
        assert "MERIDIAN_DATABASE_URL" not in spec.env
        assert "MERIDIAN_REDIS_URL" not in spec.env


def test_everything_listens_on_loopback() -> None:
    assert {spec.env["MERIDIAN_HOST"] for spec in all_specs() if "MERIDIAN_HOST" in spec.env} == {"127.0.0.1"}


def test_settings_and_proxies_of_the_caller_do_not_leak_into_children() -> None:
    inherited = processes.environment(
        {"PATH": "/bin", "HOME": "/home/a", "MERIDIAN_API_KEY": "x", "HTTP_PROXY": "y", "PYTHONPATH": "z"})
    assert inherited == {"PATH": "/bin", "HOME": "/home/a"}


def test_the_edge_enrols_with_the_file_that_provisioning_writes() -> None:
    spec = processes.edge(LAYOUT, SHAPE, SECRETS, 1)
    assert spec.env["MERIDIAN_ENROLMENT_TOKEN_FILE"] == str(processes.enrolment_file(LAYOUT.edge(1)))


def test_the_edge_ends_by_itself_before_it_is_killed() -> None:
    """What it cuts it must still settle and ship."""
    spec = processes.edge(LAYOUT, SHAPE, SECRETS, 0)
    settings = Settings(control_plane_urls=["http://x"], state_dir=LAYOUT.edge(0))
    cut_after_s = int(spec.env["MERIDIAN_SHUTDOWN_GRACE_S"])
    assert cut_after_s + settings.last_ship_s < spec.stop_grace_s


def test_a_missing_program_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(Exception, match=r"meridian is missing; run './dev install'"):
        processes.meridian()
