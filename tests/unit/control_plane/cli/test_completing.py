"""What the shell offers when a person presses Tab."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from control_plane.cli import completing
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer
from tests.unit.control_plane.cli.test_status import datacenter, deployment, view

MERIDIAN = str(Path(sys.executable).with_name("meridian"))


@pytest.fixture
def fleet(meridian: Meridian, api: OperatorServer) -> OperatorServer:
    api.status = view(datacenters=[
        datacenter(), datacenter(id="us-west-2", deployments=[deployment(id="us-west-2-a-qwen", model="sim/qwen")])])
    return api


@pytest.mark.usefixtures("fleet")
def test_names_are_those_of_the_fleet() -> None:
    assert completing.datacenters("us-") == ["us-east-1", "us-west-2"]
    assert completing.datacenters("us-w") == ["us-west-2"]
    assert completing.models("") == ["sim/glm-5.3", "sim/qwen"]
    assert completing.deployments("us-e") == ["us-east-1-a-glm"]
    assert completing.operations("") == []


def test_without_a_stack_nothing_is_offered(nowhere: Meridian) -> None:
    assert completing.datacenters("") == []


def test_a_control_plane_that_hangs_is_not_waited_for(meridian: Meridian) -> None:
    meridian.point_at(["http://10.255.255.1:9"])
    began_s = time.monotonic()
    assert completing.models("") == []
    assert time.monotonic() - began_s < 3


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    said = subprocess.run([MERIDIAN, "completion", shell], capture_output=True, text=True, check=True)
    assert f"complete_{shell}" in said.stdout


def pressed(state: Path, *words: str) -> list[str]:
    """What bash is offered for the last word."""
    environment = {**os.environ, "MERIDIAN_STATE": str(state), "_MERIDIAN_COMPLETE": "complete_bash",
                   "COMP_WORDS": " ".join(["meridian", *words]), "COMP_CWORD": str(len(words))}
    return subprocess.run([MERIDIAN], capture_output=True, text=True, check=True, env=environment).stdout.split()


@pytest.mark.usefixtures("fleet")
def test_commands_options_and_names_are_offered(meridian: Meridian) -> None:
    assert pressed(meridian.state, "sta") == ["status"]
    assert "--reason" in pressed(meridian.state, "drain", "--")
    assert pressed(meridian.state, "drain", "us-e") == ["us-east-1"]
