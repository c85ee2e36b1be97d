"""Keeps a stack's processes alive: starts them, waits until they serve, restarts what ends, stops all in order."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from control_plane.contracts.ids import jitter
from infra.local import child
from infra.local.child import ProcessSpec
from infra.local.errors import StackRefused
from infra.local.leftovers import Record

RESTART_FIRST_S = 0.5
RESTART_MAX_S = 10.0
# A process that lived this long begins again with the shortest delay.
SETTLED_S = 30.0
START_ATTEMPTS = 3
POLL_S = 0.1
# Blocking waits, one for each process that runs and one for each that stops; a stack has at most 32.
THREADS = 80


class PartState(StrEnum):
    """How a part is."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    STOPPING = "stopping"
    STOPPED = "stopped"


# STARTING -> WAITING: it ended before it served. WAITING: ended, will be restarted after the delay.
TRANSITIONS: dict[PartState, frozenset[PartState]] = {
    PartState.STARTING: frozenset({PartState.READY, PartState.WAITING, PartState.STOPPING}),
    PartState.READY: frozenset({PartState.WAITING, PartState.STOPPING}),
    PartState.WAITING: frozenset({PartState.STARTING}),
    PartState.STOPPING: frozenset({PartState.STOPPED}),
    PartState.STOPPED: frozenset(),
}


@dataclass(frozen=True)
class Part:
    """A process to keep. `prepare` says how it is run, anew before each start, and may block; `ready` says whether it
    serves. `rank`: parts of a higher rank depend on lower ones and are stopped first."""

    name: str
    rank: int
    prepare: Callable[[], ProcessSpec]
    ready: Callable[[], Awaitable[bool]]
    ready_deadline_s: float = 90.0


@dataclass(frozen=True)
class PartEvent:
    """What people are told: a part that was ready ended (`fault` says how), or is ready again."""

    name: str
    state: PartState
    fault: str = ""
    delay_s: float = 0.0


@dataclass
class Kept:
    """A part while it is kept."""

    part: Part
    first_ready: "asyncio.Future[None]"
    state: PartState = PartState.STARTING
    process: subprocess.Popen[bytes] | None = None
    spec: ProcessSpec | None = None
    task: "asyncio.Task[None] | None" = field(default=None, repr=False)

    def move(self, to: PartState) -> None:
        """Changes the state as `TRANSITIONS` allows."""
        if to not in TRANSITIONS[self.state]:
            raise ValueError(f"{self.part.name} cannot go from {self.state} to {to}")
        self.state = to


class Supervisor:
    """Owns the processes of one stack. `record` remembers them for the start after a crash of our own."""

    def __init__(self, record: Record, report: Callable[[PartEvent], None]) -> None:
        self._record, self._report = record, report
        self._kept: dict[str, Kept] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="part")

    async def start(self, part: Part) -> None:
        """Starts a part, keeps it from then on, and returns once it serves.

        Raises:
            StackRefused: it ended `START_ATTEMPTS` times before it served, or did not serve within its deadline.
        """
        kept = Kept(part, asyncio.get_running_loop().create_future())
        self._kept[part.name] = kept
        kept.task = asyncio.create_task(self._keep(kept), name=part.name)
        await kept.first_ready

    async def stop(self) -> None:
        """Stops every part, the highest rank first, equal ranks together; nothing is left when it returns."""
        for rank in sorted({kept.part.rank for kept in self._kept.values()}, reverse=True):
            await asyncio.gather(*(self._stop(kept) for kept in self._kept.values() if kept.part.rank == rank))
        self._threads.shutdown(wait=True)

    def kill(self) -> None:
        """Ends every process at once; `stop` then returns soon."""
        for kept in self._kept.values():
            if kept.process is not None:
                child.kill_group(kept.process.pid)

    def pids(self) -> dict[str, int]:
        """What runs now, by name."""
        return {name: kept.process.pid for name, kept in self._kept.items() if kept.process is not None}

    async def _keep(self, kept: Kept) -> None:
        """Runs the part again and again; ends only by cancellation or when it never served."""
        failures = 0
        while True:
            try:
                lived_s, fault = await self._run_once(kept)
            except (StackRefused, OSError) as error:
                if not kept.first_ready.done():
                    kept.first_ready.set_exception(error)
                    return
                lived_s, fault = 0.0, str(error)
            failures = 1 if lived_s >= SETTLED_S else failures + 1
            delay_s = restart_delay_s(failures)
            kept.move(PartState.WAITING)
            if kept.first_ready.done():
                self._report(PartEvent(kept.part.name, PartState.WAITING, fault, delay_s))
            elif failures >= START_ATTEMPTS:
                kept.first_ready.set_exception(
                    StackRefused(f"{kept.part.name} ended {failures} times before it served ({fault}): {_tail(kept)}"))
                return
            await asyncio.sleep(delay_s)
            kept.move(PartState.STARTING)

    async def _run_once(self, kept: Kept) -> tuple[float, str]:
        """One life of the part: how long it was, in seconds, and how it ended."""
        loop = asyncio.get_running_loop()
        kept.spec = spec = await loop.run_in_executor(self._threads, kept.part.prepare)
        kept.process = process = child.start(spec)
        self._record.add(kept.part.name, process.pid)
        began_s = loop.time()
        exit_code = loop.run_in_executor(self._threads, process.wait)
        probe = asyncio.create_task(self._await_ready(kept))
        try:
            either: set[asyncio.Future[Any]] = {exit_code, probe}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if probe.done():
                probe.result()
            code = await asyncio.shield(exit_code)
        finally:
            probe.cancel()
        child.kill_group(process.pid)
        kept.process = None
        self._record.remove(kept.part.name)
        return loop.time() - began_s, describe_exit(code)

    async def _await_ready(self, kept: Kept) -> None:
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + kept.part.ready_deadline_s
        while not await kept.part.ready():
            if now_s() > until_s and not kept.first_ready.done():
                raise StackRefused(f"{kept.part.name} does not serve after {kept.part.ready_deadline_s:.0f} s: "
                                   f"{_tail(kept)}")
            await asyncio.sleep(POLL_S)
        kept.move(PartState.READY)
        if kept.first_ready.done():
            self._report(PartEvent(kept.part.name, PartState.READY))
        else:
            kept.first_ready.set_result(None)

    async def _stop(self, kept: Kept) -> None:
        task, process, spec = kept.task, kept.process, kept.spec
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        kept.first_ready.cancel()
        if process is not None and spec is not None:
            kept.move(PartState.STOPPING)
            await asyncio.get_running_loop().run_in_executor(self._threads, child.stop, process, spec)
            kept.process = None
            self._record.remove(kept.part.name)
            kept.move(PartState.STOPPED)


def restart_delay_s(failures: int) -> float:
    """How long to wait after the n-th quick end in a row (from 1): doubled each time, with jitter, bounded."""
    return min(RESTART_MAX_S, jitter(RESTART_FIRST_S * 2.0 ** min(failures - 1, 10)))


def describe_exit(code: int) -> str:
    """An exit code in words."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _tail(kept: Kept) -> str:
    return child.log_tail(kept.spec.log_path) if kept.spec is not None else "it was not started"
