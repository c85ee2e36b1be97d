"""A fleet of small real processes, a control plane that speaks the contract, and real agents on both."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from control_plane.contracts import ids
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.launch import LaunchPlan, PlanRequest
from fleet_agent.drivers.local import LocalDriver
from fleet_agent.drivers.plan import request_plan
from fleet_agent.store import Store
from tests.integration.fleet_agent.fake_control_plane import FakeControlPlane
from tests.ports import claimed_ports
from tests.unit.fleet_agent import examples

PLAN_COMMAND = [sys.executable, "-I", "-S", str(Path(__file__).with_name("small_engine.py")), "plan"]
AGENT_COMMAND = [str(Path(sys.executable).with_name("meridian")), "agent"]


@pytest.fixture
def port_base() -> Iterator[int]:
    with claimed_ports() as base:
        yield base


@dataclass
class Engine:
    """The directory of one fleet's small engine."""

    path: Path
    port_base: int
    model_id: str = "sim/glm"

    def figures(self, inflight: int = 0, queued: int = 0, ready: int = 1) -> None:
        """What the frontend's /metrics shows from now on."""
        draft = self.path / "figures.draft"
        draft.write_text(json.dumps({self.model_id: {"ready": ready, "inflight": inflight, "queued": queued}}))
        draft.replace(self.path / "figures.json")

    def break_(self, name: str, is_broken: bool = True) -> None:
        """Whether a process of this name ends as soon as it starts."""
        marker = self.path / f"{name}.break"
        marker.touch() if is_broken else marker.unlink()

    def journal(self) -> list[tuple[float, str, int, str]]:
        """What the processes noted: time, name, pid, event."""
        path = self.path / "journal"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(float(at_s), name, int(pid), event) for at_s, name, pid, event in lines]

    def starts(self, name: str) -> list[float]:
        return [at_s for at_s, who, _, event in self.journal() if (who, event) == (name, "start")]

    def alive(self) -> dict[str, int]:
        """The processes of this engine that live, found without the agent's help. Two of a name are a fault."""
        found: dict[str, int] = {}
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                argv = Path(f"/proc/{entry}/cmdline").read_bytes().decode().split("\0") if entry.isdigit() else []
                if "serve" in argv and str(self.path) in argv:
                    name = argv[argv.index("--name") + 1]
                    assert name not in found, f"two processes are {name}"
                    found[name] = int(entry)
        return found


@contextlib.contextmanager
def small_engine(path: Path, port_base: int) -> Iterator[Engine]:
    """A small engine; whatever of it still lives in the end is killed."""
    path.mkdir()
    engine = Engine(path, port_base)
    engine.figures()
    yield engine
    for pid in engine.alive().values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


@pytest.fixture
def engine(tmp_path: Path, port_base: int) -> Iterator[Engine]:
    with small_engine(tmp_path / "engine", port_base) as engine:
        yield engine


async def plan_for(engine: Engine, state: examples.DesiredState) -> LaunchPlan:
    """The plan that the small engine gives for the state."""
    return await request_plan(PLAN_COMMAND, PlanRequest(
        fleet_id="test-a", state_dir=engine.path, host="127.0.0.1", port_base=engine.port_base,
        deployments=state.deployments))


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Returns when the condition holds; fails when it does not in time."""
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s, "it never happened"
        await asyncio.sleep(0.02)


@dataclass
class Driving:
    """A local driver at work."""

    driver: LocalDriver
    store: Store
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def ready(self) -> set[str]:
        return {process.name for process in self.driver.observe() if process.is_ready}

    async def start(self) -> None:
        await self.driver.adopt()
        self.tasks.append(asyncio.create_task(self.driver.run()))

    async def crash(self) -> None:
        """The agent's end as the processes see it: nobody supervises them any more."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()


@pytest.fixture
async def driving(tmp_path: Path, engine: Engine) -> AsyncIterator[Driving]:
    """A driver with an empty store."""
    store = Store(tmp_path / "agent.sqlite")
    async with httpx.AsyncClient(trust_env=False) as client:
        found = Driving(LocalDriver(store, SystemClock(), client), store)
        await found.start()
        yield found
        await found.crash()
    store.close()


@contextlib.contextmanager
def fake_control_plane() -> Iterator[FakeControlPlane]:
    """A control plane with an unused token."""
    fake = FakeControlPlane(ids.new_secret("enrol_meridian_test"))
    yield fake
    fake.close()


@pytest.fixture
def control_plane() -> Iterator[FakeControlPlane]:
    with fake_control_plane() as fake:
        yield fake


@dataclass
class AgentProcess:
    """A real agent, started as `meridian agent`."""

    state_dir: Path
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        with (self.state_dir.parent / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(AGENT_COMMAND, env=self.environment | environment, stderr=log)
        return self.process

    def end(self, number: signal.Signals, timeout_s: float = 15.0) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def log(self) -> str:
        return (self.state_dir.parent / "agent.log").read_text()

    def pids(self) -> dict[str, int]:
        """The processes that the agent's store holds."""
        database = sqlite3.connect(self.state_dir / "agent.sqlite")
        try:
            return dict(database.execute("SELECT name, pid FROM process").fetchall())
        finally:
            database.close()


@contextlib.contextmanager
def agent_process(tmp_path: Path, engine: Engine, control_plane: FakeControlPlane) -> Iterator[AgentProcess]:
    """An agent that is not started yet, with a token to enrol with; killed in the end."""
    (tmp_path / "token").write_text(control_plane.token + "\n")
    found = AgentProcess(tmp_path / "agent", {
        "PATH": os.environ["PATH"],
        "MERIDIAN_PORT": "0",
        "MERIDIAN_CONTROL_PLANE_URLS": control_plane.url,
        "MERIDIAN_STATE_DIR": str(tmp_path / "agent"),
        "MERIDIAN_ENROLMENT_TOKEN_FILE": str(tmp_path / "token"),
        "MERIDIAN_ENGINE_PLAN_COMMAND": json.dumps(PLAN_COMMAND),
        "MERIDIAN_ENGINE_PORT_BASE": str(engine.port_base),
        "MERIDIAN_ENGINE_STATE_DIR": str(engine.path),
    })
    yield found
    if found.process is not None and found.process.poll() is None:
        found.process.kill()
        found.process.wait()


@pytest.fixture
def agent(tmp_path: Path, engine: Engine, control_plane: FakeControlPlane) -> Iterator[AgentProcess]:
    with agent_process(tmp_path, engine, control_plane) as found:
        yield found
