"""A whole local stack under test: started with `meridian up`, looked at from outside, its processes killed by pid."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.ports import claim_ports

START_DEADLINE_S = 240.0
STOP_DEADLINE_S = 60.0
BLOCKS_NEEDED = 5
MERIDIAN = str(Path(sys.executable).with_name("meridian"))


class LocalStack:
    """`meridian up` in a process of its own. Use `start()` and `stop()`; everything else needs a running stack."""

    def __init__(self, state: Path, datacenters: int = 3, edges: int = 2, replicas: int = 2,
                 port_base: int | None = None, user: int | None = None) -> None:
        self.state = state
        self._user = user
        self.port_base = port_base or claim_ports(BLOCKS_NEEDED)
        self.output = state.with_name(state.name + ".out")
        self._arguments = [MERIDIAN, "up", "--state", str(state), "--port-base", str(self.port_base),
                           "--datacenters", str(datacenters), "--edges", str(edges), "--replicas", str(replicas)]
        self._up: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Returns the seconds until the panel was shown; raises with the output when it never was."""
        began = time.monotonic()
        with self.output.open("wb") as output:
            self._up = subprocess.Popen(self._arguments, stdout=output, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, start_new_session=True, user=self._user,
                                        group=self._user, extra_groups=None if self._user is None else [],
                                        env=os.environ | {"HOME": str(self.state.parent)})
        while "Meridian is up" not in self.output.read_text():
            if self._up.poll() is not None or time.monotonic() - began > START_DEADLINE_S:
                raise AssertionError(f"the stack did not start:\n{self.output.read_text()}")
            time.sleep(0.1)
        return time.monotonic() - began

    def stop(self, sign: signal.Signals = signal.SIGINT) -> int:
        """Ends the stack as Ctrl-C does, and returns its exit status."""
        assert self._up is not None
        self._up.send_signal(sign)
        return self._up.wait(STOP_DEADLINE_S)

    @property
    def facts(self) -> dict[str, Any]:
        """`local.json`."""
        facts: dict[str, Any] = json.loads((self.state / "local.json").read_text())
        return facts

    def processes(self) -> list[psutil.Process]:
        """Every process that carries this stack's state directory in its words."""
        return [process for process in psutil.process_iter() if str(self.state) in words_of(process)]

    def find(self, *words: str) -> list[psutil.Process]:
        """The processes of this stack whose words hold all `words`, oldest first."""
        found = [process for process in self.processes() if all(word in words_of(process) for word in words)]
        return sorted(found, key=psutil.Process.create_time)

    def kill(self, *words: str) -> int:
        """SIGKILL to the processes that `find` gives; at least one must be there."""
        found = self.find(*words)
        assert found, f"no process of the stack matches {words}"
        for process in found:
            os.kill(process.pid, signal.SIGKILL)
        return len(found)

    def kill_all(self) -> None:
        """The last resort of a failed test: nothing of it may stay on the machine."""
        if self._up is not None and self._up.poll() is None:
            self._up.kill()
            self._up.wait()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def meridian(self, *arguments: str, deadline_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Runs the command line against this stack."""
        return subprocess.run([MERIDIAN, *arguments, "--state", str(self.state)], capture_output=True, text=True,
                              timeout=deadline_s, check=False)

    def json(self, *arguments: str, deadline_s: float = 120.0) -> Any:
        """What the command prints with `-o json`; it must succeed."""
        done = self.meridian(*arguments, "-o", "json", deadline_s=deadline_s)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def operator(self, path: str, **query: str | int) -> Any:
        """GET on the operator API, on whichever replica answers."""
        facts = self.facts
        headers = {"authorization": f"Bearer {facts['operator_token']}"}
        for url in facts["control_plane_urls"]:
            try:
                answer = httpx.get(url + path, params=query, headers=headers, timeout=5.0, trust_env=False)
            except httpx.HTTPError:
                continue
            answer.raise_for_status()
            return answer.json()
        raise ConnectionError("no control-plane replica answers")

    def generations(self, limit: int = 100) -> list[dict[str, Any]]:
        """The newest usage records, newest first."""
        records: list[dict[str, Any]] = self.operator("/operator/v1/generations", limit=limit)["data"]
        return records

    def record_of(self, request_id: str, deadline_s: float = 10.0) -> dict[str, Any]:
        """The usage record of a request as the `x-request-id` header named it."""
        wanted = request_id.removeprefix("req_").replace("-", "")
        return until(lambda: next((record for record in self.generations()
                                   if record["request_id"].removeprefix("req_").replace("-", "") == wanted), None),
                     deadline_s, f"a usage record of {request_id}")

    def inflight(self) -> float:
        """Requests inside all datacenters' frontends now."""
        return sum(self.gauge(place["ingress_url"], "dynamo_frontend_inflight_requests")
                   for place in self.facts["datacenters"])

    @staticmethod
    def gauge(url: str, name: str) -> float:
        """The sum of a metric over its labels; 0 when the process does not answer."""
        try:
            text = httpx.get(f"{url}/metrics", timeout=5.0, trust_env=False).text
        except httpx.HTTPError:
            return 0.0
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith((name + "{", name + " ")))

    def settle(self, deadline_s: float = 120.0) -> None:
        """Waits until every datacenter is active and ready and every edge has the newest snapshot."""
        def settled() -> bool:
            try:
                status = self.operator("/operator/v1/status")
            except (ConnectionError, httpx.HTTPError):
                return False
            ready = all(place["traffic_state"] == "active" and all(x["phase"] == "ready" for x in place["deployments"])
                        for place in status["datacenters"])
            return ready and all(edge["live"] and edge["behind"] == 0 for edge in status["edges"])

        until(settled, deadline_s, "a settled stack")


def words_of(process: psutil.Process) -> str:
    """Command line, directory and environment in one line; empty for what is gone or a zombie.

    The directory, because Valkey writes its title over its command line and environment.
    """
    try:
        environment = (f"{name}={value}" for name, value in process.environ().items())
        return " ".join([*process.cmdline(), process.cwd(), *environment])
    except (psutil.Error, OSError):
        return ""


@contextlib.contextmanager
def state_directory() -> Iterator[Path]:
    """A place for one stack's state. Not below pytest's own directories: those are closed to other accounts, and
    Postgres runs as another account when this is root."""
    parent = Path(tempfile.mkdtemp(prefix="meridian-e2e-"))
    parent.chmod(0o711)
    try:
        yield parent / "state"
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def until(probe: Callable[[], Any], deadline_s: float, what: str) -> Any:
    """The first true answer of `probe`, asked every 0.1 s."""
    ends = time.monotonic() + deadline_s
    while time.monotonic() < ends:
        if answer := probe():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come within {deadline_s} s")
