"""A local stack under chaos: its teams and keys, its load, its victims, and how it is brought to rest afterwards."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec

from control_plane.contracts import ids
from control_plane.contracts.clock import SystemClock
from tests.chaos import checker, evidence, history
from tests.chaos.checker import BACK, Window, windows_of
from tests.chaos.evidence import Evidence
from tests.chaos.history import Fault, History, Journal, Moved
from tests.chaos.load import Plan
from tests.chaos.report import Report
from tests.chaos.victims import Hunter, Victim
from tests.e2e.stack import LocalStack

CLOCK = SystemClock()
MODEL = "sim/glm-5.3"
KEYS_A_TEAM = 2
CREDIT_USD = "1000"
CALL_DEADLINE_S = 10.0
REST_DEADLINE_S = 150.0
RECORDS_DEADLINE_S = 60.0
LOAD_END_S = 180.0
FINAL = ("succeeded", "failed", "refused", "cancelled", "rolled_back")


class World:
    """One run on a running stack. Files of the run are in `directory`."""

    def __init__(self, stack: LocalStack, directory: Path, seed: int, report: Report) -> None:
        self.stack, self.directory, self.seed, self.report = stack, directory, seed, report
        directory.mkdir(parents=True, exist_ok=True)
        self.chance = random.Random(seed)
        self.journal = Journal(directory / "driver.jsonl")
        self.facts = stack.facts
        self.hunter = Hunter(stack.state, stack.port_base, self.journal, self.chance)
        self.teams: list[str] = []
        self.keys: list[tuple[str, str]] = []
        self._loads: list[Path] = []
        self._watchers: list[threading.Thread] = []

    # -- before -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Makes teams with keys, one of them prepaid, and lets every edge see every key."""
        for mode in ("postpaid", "postpaid", "prepaid"):
            slug = f"chaos-{ids.uuid7().hex[-10:]}"
            team = self.operate("POST", "/operator/v1/teams", {"name": slug, "slug": slug})
            if mode == "prepaid":
                self.operate("PUT", f"/operator/v1/teams/{slug}/billing", {"mode": mode})
                self.operate("POST", f"/operator/v1/teams/{slug}/credits",
                             {"amount_usd": CREDIT_USD, "reason": "chaos"})
            self.teams.append(team["id"])
            for number in range(KEYS_A_TEAM):
                key = self.operate("POST", f"/operator/v1/teams/{slug}/keys", {"name": f"chaos {number}"})
                self.keys.append((team["id"], key["secret"]))
        with self.load(per_s=30.0, at_most=30 * len(self.keys)):
            pass

    # -- load ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def load(self, per_s: float, at_most: int = 0, **more: Any) -> Iterator["Running"]:
        """Loads the stack until the block ends, or until `at_most` requests were asked; waits until all have ended."""
        number = len(self._loads)
        path = self.directory / f"load-{number}.jsonl"
        self._loads.append(path)
        plan = Plan(edges=self.edge_urls, keys=self.keys, model=MODEL, history=str(path), seed=self.seed + number,
                    load=number, per_s=per_s, at_most=at_most, **more)
        plan_path = self.directory / f"load-{number}.json"
        plan_path.write_bytes(msgspec.json.encode(plan))
        plan_path.chmod(0o600)
        process = subprocess.Popen([sys.executable, "-m", "tests.chaos.load", str(plan_path)])
        running = Running(process, path, at_most)
        try:
            yield running
            if not at_most:
                process.send_signal(signal.SIGTERM)
            process.wait(LOAD_END_S + at_most / per_s)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            raise RuntimeError(f"the load ended with exit code {process.returncode}")

    @property
    def edge_urls(self) -> list[str]:
        return [url.removesuffix("/v1") for url in self.facts["edge_urls"]]

    @property
    def edge_ports(self) -> list[int]:
        return [int(url.rsplit(":", 1)[1]) for url in self.edge_urls]

    @property
    def datacenters(self) -> list[str]:
        return [place["id"] for place in self.facts["datacenters"]]

    # -- faults -------------------------------------------------------------------------------------------------------

    def kill(self, victim: Victim) -> bool:
        """kill -9; of an edge it is noted when it serves again."""
        if not self.hunter.kill(victim):
            return False
        if victim.kind == "edge":
            watcher = threading.Thread(target=self._watch, args=(victim,), daemon=True)
            watcher.start()
            self._watchers.append(watcher)
        return True

    def _watch(self, victim: Victim) -> None:
        ends_s = time.monotonic() + REST_DEADLINE_S
        while time.monotonic() < ends_s:
            with contextlib.suppress(httpx.HTTPError):
                url = f"http://127.0.0.1:{victim.place}/readyz"
                if httpx.get(url, timeout=1.0, trust_env=False).status_code == 200:
                    self.journal.write(Fault(BACK, victim.name, CLOCK.time_s()))
                    return
            time.sleep(0.1)

    # -- operator -----------------------------------------------------------------------------------------------------

    def operate(self, method: str, path: str, body: dict[str, Any] | None = None, key: str = "",
                patience_s: float = 30.0) -> Any:
        """The operator API on whichever replica answers, asked again while none does.

        Raises:
            Refused: it was refused, or nobody answered in time.
        """
        headers = {"authorization": f"Bearer {self.facts['operator_token']}"}
        if key:
            headers["idempotency-key"] = key
        ends_s, fault = time.monotonic() + patience_s, "nobody answered"
        while time.monotonic() < ends_s:
            for url in self.facts["control_plane_urls"]:
                try:
                    answer = httpx.request(method, url + path, json=body, headers=headers, timeout=CALL_DEADLINE_S,
                                           trust_env=False)
                except httpx.HTTPError as error:
                    fault = type(error).__name__
                    continue
                if answer.is_success:
                    return answer.json()
                fault = f"HTTP {answer.status_code} {answer.text[:300]}"
                if answer.status_code < 500:
                    raise Refused(fault)
            time.sleep(0.2)
        raise Refused(fault)

    def move(self, kind: str, datacenter: str, patience_s: float = 90.0) -> Moved:
        """Orders an operation and follows it to its end, as a patient operator would."""
        at_s, key = CLOCK.time_s(), ids.nonce()
        state, operation = "unanswered", ""
        try:
            answer = self.operate("POST", "/operator/v1/operations", {
                "kind": kind, "datacenter": datacenter, "reason": "chaos", "deadline_s": 30.0}, key=key)
            operation, state = answer["operation"]["id"], answer["operation"]["state"]
            ends_s = time.monotonic() + patience_s
            while state not in FINAL and time.monotonic() < ends_s:
                time.sleep(0.3)
                with contextlib.suppress(Refused):
                    state = self.operate("GET", f"/operator/v1/operations/{operation}", patience_s=5.0)["state"]
        except Refused as refusal:
            state = f"refused: {refusal}"[:200]
        moved = Moved(kind, datacenter, at_s, CLOCK.time_s(), state, operation)
        self.journal.write(moved)
        return moved

    # -- after --------------------------------------------------------------------------------------------------------

    def come_to_rest(self) -> tuple[str, float]:
        """Lets everything go on, gives every datacenter its traffic back, and waits until all of it is at rest. What is
        not in the end, in words, and how long it took."""
        self.hunter.release_all()
        began_s = time.monotonic()
        fault = "the control plane does not answer"
        while time.monotonic() - began_s < REST_DEADLINE_S:
            with contextlib.suppress(Refused):
                status = self.operate("GET", "/operator/v1/status", patience_s=5.0)
                fault = evidence.unconverged(status)
                live = sum(edge["live"] for edge in status["edges"])
                if not fault and live == len(self.edge_urls):
                    break
                fault = fault or f"{live} edges are live"
                self._restore(status)
            time.sleep(0.5)
        for watcher in self._watchers:
            watcher.join(5.0)
        return fault, time.monotonic() - began_s

    def _restore(self, status: dict[str, Any]) -> None:
        """Operations end by themselves; then whatever was taken out comes back."""
        page = self.operate("GET", "/operator/v1/operations?limit=20", patience_s=5.0)["data"]
        busy = {one["datacenter"] for one in page if one["state"] not in FINAL}
        for place in status["datacenters"]:
            ready = all(one["phase"] == "ready" for one in place["deployments"])
            if place["traffic_state"] != "active" and place["id"] not in busy and ready:
                self.move("restore", place["id"])

    def history(self) -> History:
        """All that was seen so far."""
        return history.read([*self._loads, self.directory / "driver.jsonl"])

    def collect(self, seen: History) -> Evidence:
        """Waits for rest and for the records, and reads what is there."""
        fault, took_s = self.come_to_rest()
        wanted = {one.request_id for one in seen.tries if one.status == checker.OK}
        evidence.wait_settled(self.stack, self.teams, wanted, RECORDS_DEADLINE_S)
        found = evidence.run(self.facts["database_url"], self.teams)
        found.unconverged, found.converged_s = fault, took_s
        found.audit_verified = self._verify_audit()
        return found

    def windows(self, seen: History) -> list[Window]:
        return windows_of(seen.faults, self.edge_ports)

    def _verify_audit(self) -> bool | None:
        """What `meridian audit verify` says; nothing while there is no such command."""
        if "verify" not in self.stack.meridian("audit", "--help").stdout:
            return None
        return self.stack.meridian("audit", "verify").returncode == 0

    def close(self) -> None:
        self.hunter.release_all()
        self.journal.close()


class Refused(Exception):
    """The control plane said no, or nothing."""


class Running:
    """The load while it runs."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path, at_most: int) -> None:
        self.process, self.path, self.at_most = process, path, at_most
        self._offset, self._counts = 0, {"ended": 0, "failed": 0, "retried": 0}

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def counts(self) -> dict[str, int]:
        """Requests that ended, those of them that failed for good, and tries that failed, so far."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._offset)
                whole, _, _ = (data := file.read()).rpartition(b"\n")
            self._offset += len(whole) + (1 if whole else 0)
            for line in whole.split(b"\n") if whole else ():
                self._count(json.loads(line))
            del data
        return self._counts

    def _count(self, entry: dict[str, Any]) -> None:
        if entry["type"] != "try":
            return
        finished = entry["verdict"] == "finished"
        self._counts["ended"] += entry["last"]
        self._counts["failed"] += entry["last"] and not finished
        self._counts["retried"] += not entry["last"] and not finished

    def words(self) -> str:
        """The counts for the live line."""
        counts = self.counts()
        return f"{counts['ended']:,} requests, {counts['failed']} failed, {counts['retried']} retries"
