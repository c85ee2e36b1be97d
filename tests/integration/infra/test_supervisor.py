"""Supervision of real processes: restarts, order of the stop, groups, what is told."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from infra.local import supervisor as module
from infra.local.child import ProcessSpec, is_gone
from infra.local.errors import StackRefused
from infra.local.leftovers import Record
from infra.local.supervisor import Part, PartEvent, PartState, Supervisor

# Touches its file when it serves, writes its name into the journal when SIGTERM reaches it, then ends.
SERVER = """
import pathlib, signal, sys, time
name, directory = sys.argv[1], pathlib.Path(sys.argv[2])
def stop(*_):
    with (directory / "journal").open("a") as journal:
        journal.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
(directory / name).touch()
time.sleep(60)
"""
STUBBORN = SERVER.replace('signal.signal(signal.SIGTERM, stop)', 'signal.signal(signal.SIGTERM, signal.SIG_IGN)')
PARENT = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
(pathlib.Path(sys.argv[2]) / "grandchild").write_text(str(child.pid))
(pathlib.Path(sys.argv[2]) / sys.argv[1]).touch()
time.sleep(60)
"""


@dataclass
class Bench:
    """A supervisor with a directory for what its parts write, and everything that it reported."""

    directory: Path
    supervisor: Supervisor
    events: list[PartEvent] = field(default_factory=list)

    def part(self, name: str, rank: int = 0, code: str = SERVER, grace_s: float = 5.0) -> Part:
        spec = ProcessSpec(
            name=name, argv=(sys.executable, "-S", "-c", code, name, str(self.directory)), env={"PATH": os.defpath},
            log_path=self.directory / f"{name}.log", stop_grace_s=grace_s,
        )  # fmt: skip

        def prepare() -> ProcessSpec:
            (self.directory / name).unlink(missing_ok=True)
            return spec

        return Part(name, rank, prepare, self.serves(name))

    def serves(self, name: str) -> Callable[[], Awaitable[bool]]:
        async def probe() -> bool:
            return await asyncio.to_thread((self.directory / name).exists)

        return probe

    async def event(self, state: PartState) -> PartEvent:
        """The first event of that state."""
        while True:
            for event in self.events:
                if event.state is state:
                    return event
            await asyncio.sleep(0.02)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A bench whose restarts come soon; nothing of it is left afterwards."""
    monkeypatch.setattr(module, "RESTART_FIRST_S", 0.05)
    events: list[PartEvent] = []
    found = Bench(tmp_path, Supervisor(Record(tmp_path / "processes.json"), events.append), events)
    yield found
    pids = found.supervisor.pids().values()
    await found.supervisor.stop()
    assert all(is_gone(pid) for pid in pids)


def command_of(pid: int) -> list[str]:
    return psutil.Process(pid).cmdline()


async def test_start_returns_once_the_part_serves(bench: Bench) -> None:
    await bench.supervisor.start(bench.part("edge"))
    assert (bench.directory / "edge").exists()
    assert "edge" in command_of(bench.supervisor.pids()["edge"])


async def test_a_part_leads_its_own_session_so_that_ctrl_c_does_not_reach_it(bench: Bench) -> None:
    await bench.supervisor.start(bench.part("edge"))
    pid = bench.supervisor.pids()["edge"]
    assert os.getsid(pid) == pid != os.getsid(0)


async def test_a_killed_part_is_started_again_and_both_are_told(bench: Bench) -> None:
    await bench.supervisor.start(bench.part("edge"))
    first = bench.supervisor.pids()["edge"]
    os.kill(first, signal.SIGKILL)
    ended = await bench.event(PartState.WAITING)
    await bench.event(PartState.READY)
    assert (ended.name, ended.fault) == ("edge", "signal 9")
    assert bench.supervisor.pids()["edge"] != first


async def test_a_part_that_keeps_ending_waits_longer_each_time(bench: Bench) -> None:
    part = bench.part("edge")
    await bench.supervisor.start(part)
    while len([event for event in bench.events if event.state is PartState.WAITING]) < 4:
        with contextlib.suppress(ProcessLookupError, KeyError):
            os.kill(bench.supervisor.pids()["edge"], signal.SIGKILL)
        await asyncio.sleep(0.05)
    delays_s = [event.delay_s for event in bench.events if event.state is PartState.WAITING]
    assert delays_s == sorted(delays_s)
    assert delays_s[3] > 3 * delays_s[0]


async def test_what_a_killed_part_had_started_ends_with_it(bench: Bench) -> None:
    await bench.supervisor.start(bench.part("worker", code=PARENT))
    grandchild = int((bench.directory / "grandchild").read_text())
    os.kill(bench.supervisor.pids()["worker"], signal.SIGKILL)
    await bench.event(PartState.WAITING)
    assert is_gone(grandchild)


async def test_stop_ends_what_depends_on_others_first(bench: Bench) -> None:
    for name, rank in (("postgres", 0), ("control-plane", 1), ("edge", 2)):
        await bench.supervisor.start(bench.part(name, rank))
    await bench.supervisor.stop()
    assert (bench.directory / "journal").read_text().split() == ["edge", "control-plane", "postgres"]


async def test_stop_kills_what_does_not_listen_and_its_group(bench: Bench) -> None:
    await bench.supervisor.start(bench.part("deaf", code=STUBBORN, grace_s=0.2))
    pid = bench.supervisor.pids()["deaf"]
    await bench.supervisor.stop()
    assert is_gone(pid)


async def test_stop_ends_the_grandchildren(bench: Bench) -> None:
    await bench.supervisor.start(bench.part("worker", code=PARENT))
    grandchild = int((bench.directory / "grandchild").read_text())
    await bench.supervisor.stop()
    assert is_gone(grandchild)


async def test_a_part_that_waits_for_its_restart_is_not_started_by_a_stop(bench: Bench) -> None:
    await bench.supervisor.start(bench.part("edge"))
    os.kill(bench.supervisor.pids()["edge"], signal.SIGKILL)
    await bench.event(PartState.WAITING)
    await bench.supervisor.stop()
    await asyncio.sleep(0.2)
    assert bench.supervisor.pids() == {}


async def test_kill_ends_everything_at_once(bench: Bench) -> None:
    await bench.supervisor.start(bench.part("deaf", code=STUBBORN, grace_s=60.0))
    async with asyncio.timeout(5):
        stopping = asyncio.create_task(bench.supervisor.stop())
        await asyncio.sleep(0.1)
        bench.supervisor.kill()
        await stopping


async def test_a_part_that_never_serves_is_refused_with_its_last_words(bench: Bench) -> None:
    with pytest.raises(StackRefused, match=r"edge ended 3 times .*exit code 3.*: no such key \(its log"):
        await bench.supervisor.start(bench.part("edge", code="print('no such key'); raise SystemExit(3)"))


async def test_a_part_that_does_not_serve_in_time_is_refused_and_stopped(bench: Bench) -> None:
    slow = bench.part("edge", code="import time; time.sleep(60)")
    with pytest.raises(StackRefused, match="edge does not serve after 0 s"):
        await bench.supervisor.start(Part(slow.name, 0, slow.prepare, slow.ready, ready_deadline_s=0.3))


async def test_a_part_that_cannot_be_prepared_is_refused(bench: Bench) -> None:
    def refuse() -> ProcessSpec:
        raise StackRefused("no Postgres was found")

    with pytest.raises(StackRefused, match="no Postgres was found"):
        await bench.supervisor.start(Part("postgres", 0, refuse, bench.serves("postgres")))


async def test_a_restart_that_cannot_be_prepared_is_tried_again(bench: Bench) -> None:
    whole, calls = bench.part("postgres"), []

    def prepare() -> ProcessSpec:
        calls.append(1)
        if len(calls) == 2:
            raise StackRefused("another Postgres still uses the directory")
        return whole.prepare()

    await bench.supervisor.start(Part("postgres", 0, prepare, whole.ready))
    os.kill(bench.supervisor.pids()["postgres"], signal.SIGKILL)
    await bench.event(PartState.READY)
    faults = [event.fault for event in bench.events if event.state is PartState.WAITING]
    assert faults == ["signal 9", "another Postgres still uses the directory"]


async def test_a_stop_during_the_start_leaves_nothing(bench: Bench) -> None:
    start = asyncio.create_task(bench.supervisor.start(bench.part("edge", code="import time; time.sleep(60)")))
    while not bench.supervisor.pids():  # noqa: ASYNC110  a process has no event to wait for
        await asyncio.sleep(0.01)
    pid = bench.supervisor.pids()["edge"]
    start.cancel()
    await asyncio.wait({start})
    await bench.supervisor.stop()
    assert is_gone(pid)


async def test_what_runs_is_on_record_and_what_ended_is_not(bench: Bench) -> None:
    await bench.supervisor.start(bench.part("edge"))
    record = Record(bench.directory / "processes.json")
    assert [row.pid for row in record.previous()] == [bench.supervisor.pids()["edge"]]
    await bench.supervisor.stop()
    assert record.previous() == []
