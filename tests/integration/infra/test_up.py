"""`meridian up` as a process: every refusal is one clear line with exit code 1, and leaves nothing running."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from infra.local import processes
from infra.local.layout import open_layout
from infra.local.ports import HOST
from tests.ports import claimed_ports

DEADLINE_S = 60.0


def meridian_up(state: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [processes.meridian(), "up", "--state", str(state), *arguments], capture_output=True, text=True,
        timeout=DEADLINE_S, check=False, env=processes.environment() | environment)


def assert_refused(done: "subprocess.CompletedProcess[str]", words: str) -> None:
    assert done.returncode == 1, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def until(probe: Callable[[], bool], what: str) -> None:
    ends_s = time.monotonic() + DEADLINE_S
    while not probe():
        assert time.monotonic() < ends_s, what
        time.sleep(0.1)


def stack_processes(state: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(state) in word for word in [*process.cmdline(), *process.environ().values()]):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def port_base() -> Iterator[int]:
    with claimed_ports(3) as base:
        yield base


def test_a_taken_port_is_named(open_directory: Path, port_base: int) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((HOST, port_base + 20))
        taken.listen()
        done = meridian_up(open_directory / "state", "--port-base", str(port_base))
    assert_refused(done, f"{port_base + 20} (Postgres)")
    assert stack_processes(open_directory) == []


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    assert_refused(meridian_up(tmp_path), "holds something else than Meridian's state")


def test_a_stack_that_runs_already_is_named_with_its_process(tmp_path: Path) -> None:
    _, lock = open_layout(tmp_path)
    with lock:
        assert_refused(meridian_up(tmp_path), f"(process {os.getpid()})")


def test_a_missing_program_stops_what_had_started(open_directory: Path, port_base: int) -> None:
    state = open_directory / "state"
    done = meridian_up(state, "--port-base", str(port_base), MERIDIAN_PG_BIN_DIR=str(open_directory))
    assert_refused(done, "holds no program 'postgres'")
    assert stack_processes(state) == []


def test_a_path_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    assert_refused(meridian_up(tmp_path / ("x" * 300)), "File name too long")


@pytest.mark.slow
@pytest.mark.stack
def test_a_stack_whose_reader_is_gone_serves_on_and_a_closed_terminal_ends_all_of_it(
    open_directory: Path, port_base: int
) -> None:
    state = open_directory / "state"
    up = subprocess.Popen(
        [processes.meridian(), "up", "--state", str(state), "--port-base", str(port_base), "--datacenters", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=processes.environment())  # fmt: skip
    assert up.stdout is not None
    assert up.stderr is not None
    up.stdout.readline()
    up.stdout.close()
    try:
        until((state / "local.json").exists, "the stack went on without its reader")
        os.kill(json.loads((state / "local.json").read_text())["pids"]["edge-0"], signal.SIGKILL)
        url = f"http://{HOST}:{port_base}/readyz"
        until(lambda: not answers(url), "the edge is gone")
        until(lambda: answers(url), "the edge is back")
    finally:
        up.send_signal(signal.SIGHUP)
        code = up.wait(DEADLINE_S)
        up.stderr.close()
    assert code == 0
    assert stack_processes(state) == []


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).is_success
    except httpx.TransportError:
        return False
