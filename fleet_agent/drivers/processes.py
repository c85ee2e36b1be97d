"""Processes of this host by pid and start time: start, find again, signal, and bury. Linux only (`/proc`).

A pid alone names nobody: it is given to a stranger once its owner is gone. A pid together with the start time (clock
ticks since boot) and the boot's id is one process for ever. Each process leads a session and a process group of its
own, so that a terminal's Ctrl-C does not reach it and all that it starts can be ended with it.
"""

import contextlib
import functools
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOKEN_VARIABLE = "MERIDIAN_PROCESS"  # noqa: S105 - the name of a variable, not a secret
MAX_LOG_BYTES = 16 * 1024 * 1024
# The last one gives away to whoever looks at the host which fleet a process belongs to.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "MERIDIAN_ENGINE_STATE_DIR")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process for ever; `started` is the boot's id and the start time."""

    pid: int
    started: str


def spawn(argv: list[str], env: dict[str, str], log_path: Path, token: str) -> ProcessIdentity:
    """Starts a process with none of this process's open files, and of its environment only what every program needs.

    Raises:
        OSError: the program or the log file cannot be opened.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    if log_path.exists() and log_path.stat().st_size > MAX_LOG_BYTES:
        log_path.replace(log_path.with_name(log_path.name + ".1"))
    pid = os.posix_spawnp(
        argv[0], argv, {**minimal_environment(), **env, TOKEN_VARIABLE: token},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, int(fd)) for fd in os.listdir("/proc/self/fd") if int(fd) > 2),
        ],
        setsid=True, setsigmask=[], setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM])
    return ProcessIdentity(pid, _started(pid) or "gone")


def minimal_environment() -> dict[str, str]:
    """What a program of ours inherits."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


def is_alive(process: ProcessIdentity) -> bool:
    """Whether this very process still runs. If it is a dead child of ours, it is reaped."""
    stat = _stat(process.pid)
    if stat is None or stat.started != process.started:
        return False
    if stat.is_dead:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
    return not stat.is_dead


def signal_group(process: ProcessIdentity, number: signal.Signals) -> None:
    """Signals the process and all of its group, if it is still this very process."""
    if _started(process.pid) == process.started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def kill_orphans(process: ProcessIdentity) -> int:
    """Kills what a dead process left behind in its session; returns how many.

    While any of them lives, the kernel gives the session's number to nobody, so a living process with that pid means
    that there are none.
    """
    if _started(process.pid) is not None:
        return 0
    orphans = [pid for pid, stat in _every_process() if stat.session == process.pid and not stat.is_dead]
    for pid in orphans:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(orphans)


def find_by_token(token: str) -> ProcessIdentity | None:
    """The session leader that was started with this token: how a process is found whose start was not written down."""
    wanted = f"{TOKEN_VARIABLE}={token}".encode()
    for pid, stat in _every_process():
        if stat.session == pid and not stat.is_dead and wanted in _environment(pid):
            started = _started(pid)
            return ProcessIdentity(pid, started) if started else None
    return None


@dataclass(frozen=True, slots=True)
class _Stat:
    is_dead: bool
    session: int
    started: str


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2:].split()  # the program's name before it may hold anything
    return _Stat(is_dead=fields[0] in "ZX", session=int(fields[3]), started=f"{_boot_id()}:{fields[19]}")


@functools.cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started(pid: int) -> str | None:
    stat = _stat(pid)
    return None if stat is None or stat.is_dead else stat.started


def _every_process() -> Iterator[tuple[int, _Stat]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))):
            yield int(entry), stat


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # somebody else's, or gone
