"""The local driver: a fleet's processes on this host, supervised like an init system would.

Owns the processes whose rows are in the store. Each start is written down before it happens, with a token that is put
into the process's environment, and completed with pid and start time after it; so an agent that is killed at any point
finds its processes at the next start: no duplicates, no orphans, and no stranger taken for one of ours. A process that
ends by itself is started again with a back-off; one that the plan no longer has is ended gracefully.
"""

import asyncio
import contextlib
import signal

import httpx
import structlog

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock
from control_plane.contracts.launch import LaunchPlan, LaunchProcess
from fleet_agent.drivers import processes, supervision
from fleet_agent.drivers.base import ProcessStatus
from fleet_agent.drivers.supervision import Failures, Managed, Move
from fleet_agent.store import ProcessRow, Store

TICK_S = 0.2
PROBE_EVERY_S = 1.0
PROBE_DEADLINE_S = 1.0
MISSED_PROBES = 3

log = structlog.get_logger()


class LocalDriver:
    """See the module. Makes no move before it has a plan: no plan is not an empty plan."""

    def __init__(self, store: Store, clock: Clock, client: httpx.AsyncClient) -> None:
        self._store, self._clock, self._client = store, clock, client
        self._plan: dict[str, LaunchProcess] = {}
        self._has_plan = False
        self._managed: dict[str, Managed] = {}
        self._failures: dict[str, Failures] = {}
        self._trouble: dict[str, str] = {}
        self._missed: dict[str, int] = {}
        self._probed_at_s: dict[str, float] = {}
        self._stop_by_s: float | None = None
        self._is_frozen = False
        self.restarts = 0

    async def adopt(self) -> None:
        for row in self._store.processes():
            found = self._find(row)
            if found is None:
                self._store.delete_process(row.spec.name)
                continue
            if row.pid is None:
                self._store.put_process(ProcessRow(row.spec, row.token, found.pid, found.started))
            self._managed[row.spec.name] = Managed(row.spec, found, self._clock.monotonic_s())
            log.info("process_adopted", process_name=row.spec.name, pid=found.pid)
        await self.probe()  # so that the first report does not call them unready

    async def run(self) -> None:
        while True:
            self.tick()
            await self.probe()
            await asyncio.sleep(TICK_S)

    def apply(self, plan: LaunchPlan) -> None:
        wanted = {process.name: process for process in plan.processes}
        changed = {name for name, spec in wanted.items() if spec != self._plan.get(name)}
        self._failures = {name: f for name, f in self._failures.items() if name in wanted and name not in changed}
        self._trouble = {name: text for name, text in self._trouble.items() if name in self._failures}
        self._plan, self._has_plan = wanted, True

    def freeze(self, is_frozen: bool) -> None:
        self._is_frozen = is_frozen

    def observe(self) -> list[ProcessStatus]:
        specs = {name: process.spec for name, process in self._managed.items()} | self._plan
        return [self._status(spec) for spec in specs.values()]

    async def stop(self, grace_s: float) -> None:
        self._plan, self._has_plan = {}, True
        self._is_frozen = False  # whoever ends the agent on this host has the last word
        self._stop_by_s = self._clock.monotonic_s() + grace_s
        while self._managed:
            self.tick()
            await asyncio.sleep(TICK_S / 4)
        self._store.forget_ready()

    def tick(self) -> None:
        """One look at everything, and the moves that follow from it."""
        self._bury()
        if self._is_frozen or not self._has_plan:
            return
        now_s = self._clock.monotonic_s()
        for move, name in supervision.moves(self._plan.values(), self._managed, self._failures, now_s):
            if move is Move.START:
                self._start(self._plan[name])
            elif move is Move.TERMINATE:
                self._terminate(self._managed[name], now_s)
            else:
                processes.signal_group(self._managed[name].identity, signal.SIGKILL)

    async def probe(self) -> None:
        """Asks every process that is due whether it serves."""
        now_s = self._clock.monotonic_s()
        due = [m for m in self._managed.values()
               if not m.is_ready or now_s - self._probed_at_s.get(m.spec.name, 0.0) >= PROBE_EVERY_S]
        await asyncio.gather(*(self._probe(process, now_s) for process in due))

    def _start(self, spec: LaunchProcess) -> None:
        token = ids.nonce()
        self._store.put_process(ProcessRow(spec, token))
        try:
            identity = processes.spawn(spec.argv, spec.env, spec.log_path, token)
        except OSError as error:
            self._store.delete_process(spec.name)
            self._fail(spec, 0.0, f"cannot be started: {error.strerror}")
            return
        self._store.put_process(ProcessRow(spec, token, identity.pid, identity.started))
        self._managed[spec.name] = Managed(spec, identity, self._clock.monotonic_s())
        self._missed.pop(spec.name, None)
        log.info("process_started", process_name=spec.name, pid=identity.pid)

    def _terminate(self, process: Managed, now_s: float) -> None:
        process.kill_at_s = now_s + process.spec.stop_grace_s
        if self._stop_by_s is not None:
            process.kill_at_s = min(process.kill_at_s, max(self._stop_by_s, now_s))
        log.info("process_ending", process_name=process.spec.name, pid=process.identity.pid)
        processes.signal_group(process.identity, signal.SIGTERM)

    def _bury(self) -> None:
        for name, process in list(self._managed.items()):
            if processes.is_alive(process.identity):
                continue
            orphans = processes.kill_orphans(process.identity)
            del self._managed[name]
            self._store.delete_process(name)
            log.info("process_ended", process_name=name, pid=process.identity.pid, orphans=orphans)
            if process.kill_at_s is None and name in self._plan:
                self._fail(self._plan[name], self._clock.monotonic_s() - process.since_s, "ended by itself")

    def _fail(self, spec: LaunchProcess, alive_s: float, trouble: str) -> None:
        now_s = self._clock.monotonic_s()
        failures = supervision.after_exit(self._failures.get(spec.name, Failures()), alive_s, now_s)
        delay_s = ids.jitter(failures.retry_at_s - now_s)
        self.restarts += 1
        self._failures[spec.name] = Failures(failures.in_a_row, now_s + delay_s)
        self._trouble[spec.name] = f"{trouble} ({failures.in_a_row} in a row), see {spec.log_path}"
        log.warning("process_failed", process_name=spec.name, trouble=trouble, in_a_row=failures.in_a_row,
                    retry_in_s=round(delay_s, 1))

    async def _probe(self, process: Managed, now_s: float) -> None:
        name = process.spec.name
        self._probed_at_s[name] = now_s
        serves = True
        if process.spec.ready_url:
            serves = False
            with contextlib.suppress(httpx.HTTPError, httpx.InvalidURL):
                serves = (await self._client.get(process.spec.ready_url, timeout=PROBE_DEADLINE_S)).is_success
        self._missed[name] = 0 if serves else self._missed.get(name, 0) + 1
        # A busy host answers late now and then: only several misses in a row take readiness away.
        process.is_ready = serves or (process.is_ready and self._missed[name] < MISSED_PROBES)
        if process.is_ready and self._clock.monotonic_s() - process.since_s >= supervision.STABLE_AFTER_S:
            self._trouble.pop(name, None)

    def _status(self, spec: LaunchProcess) -> ProcessStatus:
        process = self._managed.get(spec.name)
        is_wanted = spec.name in self._plan and (process is None or supervision.is_wanted(process, self._plan))
        return ProcessStatus(
            name=spec.name, deployment_id=spec.deployment_id, role=spec.role, is_wanted=is_wanted,
            is_running=process is not None, is_ready=process is not None and process.is_ready and is_wanted,
            trouble=self._trouble.get(spec.name, ""))

    @staticmethod
    def _find(row: ProcessRow) -> processes.ProcessIdentity | None:
        if row.pid is None or row.started is None:
            return processes.find_by_token(row.token)
        identity = processes.ProcessIdentity(row.pid, row.started)
        if processes.is_alive(identity):
            return identity
        processes.kill_orphans(identity)
        return None
