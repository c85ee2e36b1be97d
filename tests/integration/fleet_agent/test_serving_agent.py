"""A whole agent that serves, looked at from outside: nothing here changes it, so one is enough."""

import contextlib
import re
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from control_plane.contracts.agent_sync import CommandState
from tests.integration.fleet_agent import conftest
from tests.integration.fleet_agent.conftest import AgentProcess, Engine
from tests.integration.fleet_agent.fake_control_plane import FakeControlPlane
from tests.integration.fleet_agent.test_agent_process import EVERY, get, phase
from tests.ports import claimed_ports
from tests.unit.fleet_agent import examples


@dataclass
class Serving:
    """A fleet that is up."""

    agent: AgentProcess
    engine: Engine
    control_plane: FakeControlPlane

    @property
    def health_url(self) -> str:
        port = re.findall(r'"health_port": (\d+)', self.agent.log())[-1]
        return f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    tmp_path = tmp_path_factory.mktemp("serving")
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(conftest.small_engine(tmp_path / "engine", stack.enter_context(claimed_ports())))
        control_plane = stack.enter_context(conftest.fake_control_plane())
        agent = stack.enter_context(conftest.agent_process(tmp_path, engine, control_plane))
        control_plane.desired = examples.desired(1)
        agent.start()
        control_plane.wait_for(phase(examples.DeploymentPhase.READY))
        yield Serving(agent, engine, control_plane)


def test_it_enrols_and_brings_the_fleet_up(serving: Serving) -> None:
    assert set(serving.engine.alive()) == EVERY
    report = serving.control_plane.requests[-1].deployments[0]
    assert [(p.role, p.ready_replicas) for p in report.pools] == [("prefill", 1), ("decode", 2)]
    assert (report.inflight, report.queued, report.message) == (0, 0, "")


def test_its_files_are_for_this_user_only(serving: Serving) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in serving.agent.state_dir.iterdir()}
    assert {"agent.key", "identity.json", "agent.sqlite"} <= set(modes)
    assert set(modes.values()) == {0}


def test_the_token_is_in_no_log(serving: Serving) -> None:
    assert "agent_started" in serving.agent.log()
    assert serving.control_plane.token not in serving.agent.log()


def test_a_second_agent_on_the_same_state_ends_with_one_line(serving: Serving) -> None:
    second = subprocess.run(conftest.AGENT_COMMAND, env=serving.agent.environment, capture_output=True, timeout=20,
                            check=False)
    assert second.returncode == 1
    assert second.stderr.decode() == (
        f"meridian agent: another agent runs on {serving.agent.state_dir}; one agent for each state directory\n")


def test_it_is_alive_and_ready(serving: Serving) -> None:
    assert get(f"{serving.health_url}/healthz") == (200, "ok\n")
    assert get(f"{serving.health_url}/readyz") == (200, "ok\n")


def test_other_paths_are_not_found(serving: Serving) -> None:
    assert get(f"{serving.health_url}/nothing")[0] == 404


def test_its_metrics_tell_of_the_fleet(serving: Serving) -> None:
    _, text = get(f"{serving.health_url}/metrics")
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert figures['meridian_agent_processes{state="ready"}'] == "5.0"
    assert (figures["meridian_agent_epoch"], figures["meridian_agent_generation"]) == ("1.0", "1.0")
    assert figures["meridian_agent_restarts_total"] == "0.0"
    assert 0 <= float(figures["meridian_agent_sync_age_seconds"]) < 10


def test_its_processes_say_which_fleet_they_belong_to(serving: Serving) -> None:
    for pid in serving.engine.alive().values():
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert f"MERIDIAN_ENGINE_STATE_DIR={serving.engine.path}".encode() in environment


def test_every_poll_is_by_one_boot_under_one_epoch(serving: Serving) -> None:
    assert {request.boot_id for request in serving.control_plane.requests} == {serving.control_plane.boot_id}
    assert {request.epoch for request in serving.control_plane.requests} == {None, 1}


@pytest.mark.parametrize(("is_mute", "outcome", "words"), [
    (False, CommandState.SUCCEEDED, "a token of sim/glm in "), (True, CommandState.FAILED, "answered 500: no worker")])
def test_a_probe_asks_the_fleets_own_frontend(serving: Serving, is_mute: bool, outcome: CommandState,
                                              words: str) -> None:
    seq = 20 + is_mute
    with contextlib.ExitStack() as stack:
        if is_mute:
            (serving.engine.path / "mute").touch()
            stack.callback((serving.engine.path / "mute").unlink)
        serving.control_plane.order(examples.probe(seq, epoch=serving.control_plane.epoch))
        seen = serving.control_plane.wait_for(lambda request: any(
            (ack.command_id, ack.state) == (f"probe_{seq}", outcome) for ack in request.acks))
    (said,) = [ack.result for ack in seen.acks if ack.command_id == f"probe_{seq}"]
    assert words in said
