"""Victims are found among strangers by what their command lines and environments say, and nobody else is touched."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.chaos import history
from tests.chaos.history import Journal
from tests.chaos.victims import CLASSES, Hunter, kind_of

FRONTEND = ["-c", "import time; time.sleep(60)", "dynamo.frontend"]


@pytest.fixture
def hunter(tmp_path: Path) -> Iterator[Hunter]:
    with Journal(tmp_path / "journal") as journal:
        hunter = Hunter(tmp_path / "state", 9_000, journal, random.Random(1))
        yield hunter
        hunter.release_all()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Something with the command line of a frontend and the environment of this stack's datacenter."""
    environment = {"MERIDIAN_ENGINE_STATE_DIR": str(tmp_path / "state" / "datacenters" / "us-east-1" / "engine")}
    with subprocess.Popen([sys.executable, *FRONTEND], env=environment) as started:
        yield started
        started.kill()


def found(hunter: Hunter) -> list[tuple[str, str, int]]:
    ends_s = time.monotonic() + 5
    while not (alive := hunter.alive()) and time.monotonic() < ends_s:
        time.sleep(0.05)
    return [(victim.kind, victim.place, victim.pid) for victim in alive]


@pytest.mark.parametrize(("words", "kind"), [
    (["python", "/venv/bin/meridian", "edge"], "edge"),
    (["python", "/venv/bin/meridian", "control-plane"], "control plane"),
    (["python", "/venv/bin/meridian", "agent"], "agent"),
    (["python", "/venv/bin/meridian", "worker"], "celery worker"),
    (["python", "-m", "engine.awake", "dynamo.mocker", "--disaggregation-mode", "decode"], "decode worker"),
    (["python", "-m", "engine.awake", "dynamo.mocker", "--disaggregation-mode", "prefill"], "prefill worker"),
    (["python", "-m", "dynamo.frontend"], "frontend"), (["/bin/nats-server", "--addr", "x"], "nats"),
    (["/bin/postgres", "-D", "/data"], "postgres"), (["python", "-m", "engine.grammar"], "grammar"),
    (["valkey-server 127.0.0.1:9021"], "valkey"),
    (["postgres: checkpointer"], ""), (["python", "/venv/bin/meridian", "up", "--edges", "2"], ""),
    (["vi", "edge.py"], ""), (["sh", "-c", "meridian edge"], ""), ([], "")])
def test_a_command_line_belongs_to_one_class_or_to_none(words: list[str], kind: str) -> None:
    assert kind_of(words) == kind


def test_every_class_has_a_share() -> None:
    assert all(weight > 0 for _, weight in CLASSES.values())


def test_a_process_of_this_stack_is_found_with_its_place(hunter: Hunter, process: subprocess.Popen[bytes]) -> None:
    assert found(hunter) == [("frontend", "us-east-1", process.pid)]
    assert hunter.of("frontend", "eu-north-1") == []


def test_a_process_of_another_stack_is_nobody(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    with Journal(tmp_path / "other") as journal:
        other = Hunter(tmp_path / "another", 9_000, journal, random.Random(1))
        time.sleep(0.3)
        assert other.alive() == []


def test_a_killed_one_is_dead_and_written_down(
        hunter: Hunter, process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    found(hunter)
    [victim] = hunter.choose(2)
    assert hunter.kill(victim)
    assert process.wait(5) == -signal.SIGKILL
    assert not hunter.kill(victim)
    [fault] = history.read([tmp_path / "journal"]).faults
    assert (fault.kind, fault.victim, fault.pid) == ("kill", "frontend us-east-1", process.pid)


def goes_on(process: subprocess.Popen[bytes], within_s: float = 10.0) -> bool:
    """Whether a stopped process runs again within that time."""
    ends_s = time.monotonic() + within_s
    while psutil.Process(process.pid).status() == psutil.STATUS_STOPPED and time.monotonic() < ends_s:
        time.sleep(0.05)
    return psutil.Process(process.pid).status() != psutil.STATUS_STOPPED


def test_a_stopped_one_goes_on_by_itself(hunter: Hunter, process: subprocess.Popen[bytes]) -> None:
    found(hunter)
    [victim] = hunter.of("frontend")
    assert hunter.hang(victim, 1.0)
    assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    assert goes_on(process)


def test_nothing_stays_stopped(hunter: Hunter, process: subprocess.Popen[bytes]) -> None:
    found(hunter)
    [victim] = hunter.of("frontend")
    assert hunter.stop(victim)
    hunter.release_all()
    assert goes_on(process)


def test_chance_is_the_seeds(hunter: Hunter, process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    found(hunter)
    with Journal(tmp_path / "same") as journal:
        twin = Hunter(tmp_path / "state", 9_000, journal, random.Random(1))
        assert [one.pid for one in twin.choose()] == [one.pid for one in hunter.choose()] == [process.pid]
    assert os.getpid() not in [victim.pid for victim in hunter.alive()]
