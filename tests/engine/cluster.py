"""Starts a real Dynamo cluster from a launch plan, as an agent's driver would, and ends it for good."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from control_plane.contracts.deployment import DesiredDeployment, Pool, PoolRole
from control_plane.contracts.launch import LaunchPlan, LaunchProcess, PlanRequest

MODEL = "sim/test"


class Cluster:
    """The running processes of one plan, each in its own process group."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        self.url = plan.ingress_url
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Starts what is not running, in the plan's order, each after those that it waits for."""
        for process in self.plan.processes:
            if process.name in self.running and self.running[process.name].poll() is None:
                continue
            for earlier in process.start_after:
                self.wait_ready(earlier)
            self.launch(process)

    def launch(self, process: LaunchProcess) -> None:
        with process.log_path.open("ab") as log:
            self.running[process.name] = subprocess.Popen(
                process.argv, env=process.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def wait_ready(self, name: str, deadline_s: float = 20.0) -> None:
        """An answer of some other program on the same port counts for nothing once ours has ended."""
        url = next(process.ready_url for process in self.plan.processes if process.name == name)
        wait_for(lambda: _status(url) == 200, f"{name} to be ready", deadline_s)
        assert self.running[name].poll() is None, f"{name} ended: {self.tail(name)}"

    def wait_model(self, deadline_s: float = 30.0) -> None:
        """Until the model can be asked and every worker has registered."""
        wait_for(lambda: self.gauge(self.plan.gauges.model_ready) == 1.0, "the model to be ready", deadline_s)
        for process in self.plan.processes:
            if process.role:
                self.wait_ready(process.name)

    def gauge(self, name: str) -> float | None:
        """A gauge of the test model, or None if the frontend does not show it."""
        try:
            text = httpx.get(self.plan.gauges.url, timeout=5).text
        except httpx.TransportError:
            return None
        for line in text.splitlines():
            if line.startswith(name + "{") and f'model="{MODEL}"' in line:
                return float(line.rpartition(" ")[2])
        return None

    def signal(self, name: str, number: signal.Signals) -> None:
        os.killpg(self.running[name].pid, number)

    def kill(self, *names: str) -> None:
        """SIGKILL to the named processes, or to all."""
        for name in names or self.running:
            if self.running[name].poll() is None:
                self.signal(name, signal.SIGKILL)
            self.running[name].wait(10)

    def workers(self, role: PoolRole) -> list[str]:
        return [process.name for process in self.plan.processes if process.role == role]

    def tail(self, name: str) -> str:
        path = next(process.log_path for process in self.plan.processes if process.name == name)
        return path.read_text("utf-8", "replace")[-2000:]


def request(state_dir: Path, port_base: int, *, prefill: int = 1, decode: int = 2, **engine: object) -> PlanRequest:
    """A fleet with one small simulated deployment."""
    pools = [Pool(role=PoolRole.PREFILL, replicas=prefill), Pool(role=PoolRole.DECODE, replicas=decode)]
    desired = DesiredDeployment.model_validate({
        "deployment_id": "test-glm", "generation": 1, "model_id": MODEL, "context_window": 32_768, "pools": pools,
        "engine": {"kind": "sim", "cache": {"block_size": 16}, **engine},
    })
    return PlanRequest(fleet_id="test", state_dir=state_dir, host="127.0.0.1", port_base=port_base,
                       deployments=[desired])


def scripted(state_dir: Path, port_base: int, **engine: object) -> PlanRequest:
    """A fleet with one worker that says what its prompts tell it to say."""
    desired = DesiredDeployment.model_validate({
        "deployment_id": "test-script", "generation": 1, "model_id": MODEL, "context_window": 8192,
        "pools": [Pool(role=PoolRole.AGGREGATED, replicas=1)], "engine": {"kind": "script", **engine},
    })
    return PlanRequest(fleet_id="test", state_dir=state_dir, host="127.0.0.1", port_base=port_base,
                       deployments=[desired])


def plan(wanted: PlanRequest) -> LaunchPlan:
    """What `python -m engine plan` answers."""
    done = subprocess.run([sys.executable, "-m", "engine", "plan"], input=wanted.model_dump_json().encode(),
                          stdout=subprocess.PIPE, check=True, timeout=30)
    return LaunchPlan.model_validate_json(done.stdout)


@contextmanager
def cluster(wanted: PlanRequest) -> Iterator[Cluster]:
    """A cluster whose model is ready; nothing of it is left afterwards."""
    running = Cluster(plan(wanted))
    try:
        running.start()
        running.wait_model()
        yield running
    finally:
        running.kill()


def wait_for(condition: Callable[[], bool], what: str, deadline_s: float) -> None:
    """Polls until the condition holds."""
    until = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < until, f"waited {deadline_s} s for {what}"
        time.sleep(0.05)


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=5).status_code
    except httpx.TransportError:
        return 0
