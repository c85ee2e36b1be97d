"""A worker that stood still ends; one that runs is left alone and is the program that it was asked to be."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.awake import STOOD_STILL_EXIT_CODE

STOOD_STILL_S = 1.0
WATCHED = ("import sys, time; from control_plane.contracts.clock import SystemClock; from engine.awake import watch; "
           f"watch(SystemClock(), {STOOD_STILL_S}); print('runs', flush=True); time.sleep(30)")


@contextmanager
def watched() -> Iterator[subprocess.Popen[bytes]]:
    """A process that watches itself and runs."""
    with subprocess.Popen([sys.executable, "-c", WATCHED], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_process_that_stood_still_ends_and_says_why() -> None:
    with watched() as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(STOOD_STILL_S + 0.7)
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=10)
    assert process.returncode == STOOD_STILL_EXIT_CODE
    assert b"stood still" in errors


def test_a_process_that_runs_goes_on() -> None:
    with watched() as process:
        time.sleep(STOOD_STILL_S + 0.7)
        assert process.poll() is None


def test_a_short_stop_is_forgiven() -> None:
    with watched() as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(STOOD_STILL_S / 5)
        process.send_signal(signal.SIGCONT)
        time.sleep(STOOD_STILL_S)
        assert process.poll() is None


def test_the_module_runs_as_its_own_program(tmp_path: Path) -> None:
    package = tmp_path / "program"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys; print(__name__, *sys.argv[1:])")
    done = subprocess.run([sys.executable, "-m", "engine.awake", "program", "--port", "1"], capture_output=True,
                          text=True, check=True, env={"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}, timeout=30)
    assert done.stdout.strip() == "__main__ --port 1"
