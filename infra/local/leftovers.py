"""Which processes belong to a stack, and how those that a killed `meridian up` left behind are ended.

Two ways of knowing one: it was recorded (process id and start time, so that a number used again is nobody's), or its
environment names a directory inside our state. Whoever merely works inside the directory, such as a shell, has neither.
"""

import contextlib
import json
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from control_plane.contracts.signing import write_private
from infra.local import child

MARKS = ("MERIDIAN_STATE_DIR", "MERIDIAN_ENGINE_STATE_DIR", "DYN_FILE_KV")
GRACE_S = 30.0


@dataclass(frozen=True)
class ProcessFacts:
    """What is known of a process. `started_s` is a Unix time. `marks` are the values of `MARKS` in its environment."""

    pid: int
    started_s: float
    marks: tuple[str, ...]


class Record:
    """The processes that run now, in the order of their start, in a file that outlives us."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: dict[str, ProcessFacts] = {}

    def add(self, name: str, pid: int) -> None:
        """Remembers a process that was started just now; one that ended already is not worth it."""
        with contextlib.suppress(psutil.Error):
            self._running[name] = ProcessFacts(pid, psutil.Process(pid).create_time(), ())
        self._write()

    def remove(self, name: str) -> None:
        """Forgets a process that ended."""
        self._running.pop(name, None)
        self._write()

    def previous(self) -> list[ProcessFacts]:
        """What the file says, whoever wrote it; a damaged file says nothing."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            return [ProcessFacts(int(row["pid"]), float(row["started_s"]), ())
                    for row in json.loads(self._path.read_bytes())]
        return []

    def _write(self) -> None:
        """On a full disk the file stays as it is: the environment's marks still lead to every process."""
        rows = [{"name": name, "pid": facts.pid, "started_s": facts.started_s} for name, facts in self._running.items()]
        with contextlib.suppress(OSError):
            write_private(self._path, json.dumps(rows).encode())


def leftovers(table: Iterable[ProcessFacts], recorded: Iterable[ProcessFacts], state: Path) -> list[int]:
    """Process ids of what belongs to the stack in `state`: what was recorded in reverse order of its start, then what
    the environment gives away."""
    alive = {facts.pid: facts for facts in table}
    ours = [facts.pid for facts in recorded
            if facts.pid in alive and abs(alive[facts.pid].started_s - facts.started_s) < 0.05]
    marked = [facts.pid for facts in alive.values()
              if facts.pid not in ours and any(Path(mark).is_relative_to(state) for mark in facts.marks)]
    return [*reversed(ours), *sorted(marked)]


def end_leftovers(state: Path, recorded: Iterable[ProcessFacts]) -> int:
    """Ends them one after another, politely first, by process group; returns how many there were."""
    found = leftovers(process_table(), recorded, state)
    for pid in found:
        end(pid)
    return len(found)


def end(pid: int) -> None:
    """SIGTERM, then SIGKILL to what is left of its group after `GRACE_S`."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        leads = os.getpgid(pid) == pid
        os.kill(pid, signal.SIGTERM)
        if not child.wait_gone(pid, GRACE_S):
            os.kill(pid, signal.SIGKILL)
        if leads:
            child.kill_group(pid)


def process_table() -> list[ProcessFacts]:
    """Every process that we may look at, but ourselves and those that started us."""
    exempt = {os.getpid()} | {parent.pid for parent in psutil.Process().parents()}
    table = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in exempt or process.status() == psutil.STATUS_ZOMBIE:
                continue
            marks = tuple(value for name in MARKS if (value := _environment(process).get(name)))
            table.append(ProcessFacts(process.pid, process.create_time(), marks))
    return table


def _environment(process: psutil.Process) -> dict[str, str]:
    """Its environment; nothing for a process of another account."""
    with contextlib.suppress(psutil.AccessDenied):
        return process.environ()
    return {}
