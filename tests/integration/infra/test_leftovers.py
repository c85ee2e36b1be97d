"""Real processes, left behind as a killed start leaves them, are found and ended; strangers are not."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.local.child import is_gone
from infra.local.leftovers import ProcessFacts, Record, end_leftovers

SLEEP = "import time; time.sleep(60)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); {SLEEP}"
Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts processes as a stack that was killed would have left them; none outlives the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(state_dir: str, cwd: Path | None = None, code: str = SLEEP) -> "subprocess.Popen[bytes]":
        env = {"PATH": os.defpath, **({"MERIDIAN_STATE_DIR": state_dir} if state_dir else {})}
        started.append(subprocess.Popen([sys.executable, "-S", "-c", code], env=env, cwd=cwd, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def recorded(process: "subprocess.Popen[bytes]") -> ProcessFacts:
    return ProcessFacts(process.pid, psutil.Process(process.pid).create_time(), ())


def test_a_recorded_process_is_ended(spawn: Spawn, tmp_path: Path) -> None:
    left = spawn("")
    assert end_leftovers(tmp_path, [recorded(left)]) == 1
    assert is_gone(left.pid)


def test_a_process_of_the_engine_is_found_by_its_environment(spawn: Spawn, tmp_path: Path) -> None:
    left = spawn(str(tmp_path / "datacenters" / "us-east-1" / "engine"))
    assert end_leftovers(tmp_path, []) == 1
    assert is_gone(left.pid)


def test_who_merely_works_in_the_directory_is_left_alone(spawn: Spawn, tmp_path: Path) -> None:
    shell = spawn("", cwd=tmp_path)
    assert end_leftovers(tmp_path, []) == 0
    assert not is_gone(shell.pid)


def test_another_stack_is_left_alone(spawn: Spawn, tmp_path: Path) -> None:
    neighbour = spawn(str(tmp_path / "other" / "edges" / "edge-0"))
    assert end_leftovers(tmp_path / "ours", []) == 0
    assert not is_gone(neighbour.pid)


def test_what_does_not_listen_is_killed(spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.local.leftovers.GRACE_S", 0.2)
    left = spawn(str(tmp_path / "engine"), code=DEAF)
    assert end_leftovers(tmp_path, []) == 1
    assert left.wait(5) < 0


def test_a_record_that_a_killed_start_left_leads_to_its_processes(spawn: Spawn, tmp_path: Path) -> None:
    left = spawn("")
    Record(tmp_path / "processes.json").add("valkey", left.pid)
    assert end_leftovers(tmp_path, Record(tmp_path / "processes.json").previous()) == 1
    assert is_gone(left.pid)
