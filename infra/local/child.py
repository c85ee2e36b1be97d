"""One child process: what it is, how it starts, how it stops. Every child leads its own session.

Own session: Ctrl-C in the terminal reaches only `meridian up`, which then stops its children in order; and whatever a
child starts can be ended with it, by process group.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from control_plane.contracts.clock import SystemClock
from infra.local import shim
from infra.local.errors import StackRefused

POLL_S = 0.02
KILL_WAIT_S = 5.0
LOG_BYTES_MAX = 10_000_000
TAIL_BYTES = 4_096


@dataclass(frozen=True)
class ProcessSpec:
    """A process to run. `env` is its whole environment. `rights` are options of the shim that drops rights first."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]
    log_path: Path
    cwd: str = "/"
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_s: float = 10.0
    rights: tuple[str, ...] = field(default=())


def start(spec: ProcessSpec) -> subprocess.Popen[bytes]:
    """Starts it with its output appended to its log. Raises StackRefused when the program cannot be run."""
    argv = list(spec.argv)
    if spec.rights:
        argv = [interpreter(), "-I", "-S", str(Path(shim.__file__)), *spec.rights, "--", *argv]
    try:
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        Path(spec.cwd).mkdir(parents=True, exist_ok=True)
        rotate(spec.log_path)
        with spec.log_path.open("ab") as log:
            return subprocess.Popen(
                argv, env=spec.env, cwd=spec.cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )
    except OSError as error:
        raise StackRefused(f"{spec.name} cannot be started: {error.strerror} ({argv[0]})") from error


def rotate(log_path: Path) -> None:
    """Puts a log aside that grew past `LOG_BYTES_MAX`; one older file is kept."""
    with contextlib.suppress(FileNotFoundError):
        if log_path.stat().st_size > LOG_BYTES_MAX:
            log_path.replace(log_path.with_suffix(".log.1"))


def stop(process: subprocess.Popen[bytes], spec: ProcessSpec) -> int:
    """Asks it to stop, waits `stop_grace_s`, then kills what is left of its group. Returns its exit code."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(spec.stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(spec.stop_grace_s)
    kill_group(process.pid)
    return process.wait(KILL_WAIT_S)


def kill_group(leader_pid: int) -> None:
    """Kills every process of a group that we made; none is left is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)


def wait_gone(pid: int, deadline_s: float) -> bool:
    """Whether a process that is not our child ended within `deadline_s`."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + deadline_s
    while clock.monotonic_s() < until_s:
        if is_gone(pid):
            return True
        time.sleep(POLL_S)
    return False


def is_gone(pid: int) -> bool:
    """Whether a process ended; one that nobody has reaped (a container without an init) has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def interpreter() -> str:
    """The Python below any virtual environment: an account without access to the environment can still run it."""
    base = getattr(sys, "_base_executable", "")
    return base or sys.executable


def log_tail(path: Path) -> str:
    """The last line of a log and where the rest is, for an error message."""
    lines: list[str] = []
    with contextlib.suppress(OSError), path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = log.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing was logged")
    return f"{last} (its log: {path})"
