"""Which processes of a local stack may be killed, how one is found, and what is done to it.

A class has as many victims as processes of it run at the moment. They are found by their command lines and by the
state directory in their environment, so that nobody else's process is ever touched.
"""

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from control_plane.contracts.clock import SystemClock
from tests.chaos.history import Fault, Journal

CLOCK = SystemClock()
KILL, HANG = "kill", "hang"
# What a command line holds that names the class, and how often it is chosen.
CLASSES: dict[str, tuple[tuple[str, ...], int]] = {
    "edge": (("/meridian", "edge"), 2),
    "control plane": (("/meridian", "control-plane"), 3),
    "agent": (("/meridian", "agent"), 2),
    "celery worker": (("/meridian", "worker"), 1),
    "postgres": (("postgres", "-D"), 2),
    "valkey": (("valkey-server",), 2),
    "frontend": (("dynamo.frontend",), 3),
    "prefill worker": (("--disaggregation-mode", "prefill"), 2),
    "decode worker": (("--disaggregation-mode", "decode"), 4),
    "nats": (("nats-server",), 1),
    "grammar": (("engine.grammar",), 1),
}
MARKS = ("MERIDIAN_STATE_DIR", "MERIDIAN_ENGINE_STATE_DIR", "DYN_FILE_KV")


@dataclass(frozen=True)
class Victim:
    """A process of a class; `place` says which one (a port, a datacenter)."""

    kind: str
    place: str
    pid: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.place}".strip()


class Hunter:
    """Finds, kills and stops processes of one stack, and writes down what it did."""

    def __init__(self, state: Path, port_base: int, journal: Journal, chance: random.Random) -> None:
        self._state, self._port_base, self._journal, self._chance = state, port_base, journal, chance
        self._stopped: dict[int, Victim] = {}
        self._lock = threading.Lock()

    def alive(self) -> list[Victim]:
        """Every process that may be a victim now."""
        return list(self._alive())

    def of(self, kind: str, place: str = "") -> list[Victim]:
        """Those of one class, in the order of their places."""
        found = [victim for victim in self._alive() if victim.kind == kind and place in victim.place]
        return sorted(found, key=lambda victim: (victim.place, victim.pid))

    def choose(self, count: int = 1) -> list[Victim]:
        """`count` victims of different classes, by chance; fewer if fewer are alive."""
        chosen: list[Victim] = []
        alive = self.alive()
        while len(chosen) < count:
            kinds = sorted({victim.kind for victim in alive} - {victim.kind for victim in chosen})
            if not kinds:
                break
            kind = self._chance.choices(kinds, [CLASSES[one][1] for one in kinds])[0]
            chosen.append(self._chance.choice(sorted(
                (victim for victim in alive if victim.kind == kind), key=lambda victim: victim.place)))
        return chosen

    def kill(self, victim: Victim) -> bool:
        """kill -9; false if it was gone already."""
        at_s = CLOCK.time_s()
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self._journal.write(Fault(KILL, victim.name, at_s, pid=victim.pid))
        return True

    def hang(self, victim: Victim, seconds: float) -> bool:
        """Stops it for a while (SIGSTOP): it holds its connections and answers nothing. Returns at once."""
        at_s = CLOCK.time_s()
        if not self.stop(victim):
            return False
        self._journal.write(Fault(HANG, victim.name, at_s, at_s + seconds, victim.pid))
        timer = threading.Timer(seconds, self.go_on, (victim,))
        timer.daemon = True
        timer.start()
        return True

    def stop(self, victim: Victim) -> bool:
        """SIGSTOP, until `go_on`."""
        with contextlib.suppress(ProcessLookupError), self._lock:
            os.kill(victim.pid, signal.SIGSTOP)
            self._stopped[victim.pid] = victim
            return True
        return False

    def go_on(self, victim: Victim) -> None:
        """SIGCONT."""
        with contextlib.suppress(ProcessLookupError), self._lock:
            if self._stopped.pop(victim.pid, None):
                os.kill(victim.pid, signal.SIGCONT)

    def release_all(self) -> None:
        """Nothing stays stopped, however a run ends."""
        for victim in list(self._stopped.values()):
            self.go_on(victim)

    def _alive(self) -> Iterator[Victim]:
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (victim := self._victim(int(entry))):
                yield victim

    def _victim(self, pid: int) -> Victim | None:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            kind = kind_of(words)
            if kind and self._is_ours(pid, kind, words):
                return Victim(kind, self._place(pid, kind), pid)
        return None

    def _is_ours(self, pid: int, kind: str, words: list[str]) -> bool:
        """Postgres and Valkey have no environment of ours: their port says whose they are."""
        if kind == "postgres":
            return f"port={self._port_base + 20}" in words
        if kind == "valkey":
            return any(word.endswith(f":{self._port_base + 21}") for word in words) or str(self._state) in words[-1]
        return any(str(self._state) in mark for mark in environment(pid, MARKS))

    def _place(self, pid: int, kind: str) -> str:
        if kind in ("edge", "control plane"):
            return next(iter(environment(pid, ("MERIDIAN_PORT",))), "")
        marks = " ".join(environment(pid, MARKS))
        found = marks.partition("/datacenters/")[2]
        return found.split("/", 1)[0]


def kind_of(words: list[str]) -> str:
    """The class that a command line belongs to; empty if it is nobody's."""
    line = " ".join(words)
    if not line:
        return ""
    for kind, (marks, _) in CLASSES.items():
        if all(mark in line for mark in marks):
            if kind in ("edge", "control plane", "agent", "celery worker") and not is_meridian(words, marks[1]):
                continue
            if kind == "postgres" and not words[0].endswith("/postgres"):
                continue
            return kind
    return ""


def is_meridian(words: list[str], role: str) -> bool:
    """Whether it is `meridian ROLE`, and not a shell that runs it."""
    return any(word.endswith("/meridian") and words[at + 1:at + 2] == [role] for at, word in enumerate(words))


def environment(pid: int, names: tuple[str, ...]) -> list[str]:
    """The values of these variables, as far as the process has them."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    pairs = [one.decode(errors="replace").partition("=") for one in variables]
    return [value for name, _, value in pairs if name in names]
