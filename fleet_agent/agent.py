"""One agent at work: the loops that supervise, plan, observe and sync, each independent of the others.

They meet in plain data only: the executor's state, the store, and the driver's list of processes. So the cluster is
supervised while the control plane is away, and the control plane is told the truth while the engine is stuck.
"""

import asyncio
from collections.abc import Mapping

import httpx
import structlog

from control_plane.contracts import ids
from control_plane.contracts.agent_sync import REFUSED, DeploymentPhase, DesiredState, ObservedDeployment
from control_plane.contracts.clock import Clock
from control_plane.contracts.enrolment import EnrolAnswer
from control_plane.contracts.launch import PlanRequest
from control_plane.contracts.signing import VerifyKey
from control_plane.contracts.transport import ControlPlaneClient
from fleet_agent.caches import Caches
from fleet_agent.core import Figures, Observed, Standing
from fleet_agent.drivers.base import Driver
from fleet_agent.drivers.local import LocalDriver
from fleet_agent.drivers.plan import PlanFailed, Refused, request_plan
from fleet_agent.executor import Executor
from fleet_agent.observe import Frontend, View, report
from fleet_agent.probes import Prober
from fleet_agent.settings import Settings
from fleet_agent.store import Accepted, Store
from fleet_agent.sync import Renew, SyncLoop, no_renewal

OBSERVE_EVERY_S = 0.5
PROBE_LOOK_S = 0.1
FIRST_PLAN_RETRY_S = 1.0
MAX_PLAN_RETRY_S = 30.0

log = structlog.get_logger()


class Agent:
    """Drives one fleet. `beat_at_s` is the monotonic time of its last sign of life."""

    def __init__(self, settings: Settings, identity: EnrolAnswer, store: Store, clock: Clock,
                 control_plane: ControlPlaneClient, engine: httpx.AsyncClient, renew: Renew = no_renewal) -> None:
        self._settings, self._fleet_id, self._store, self._clock = settings, identity.subject, store, clock
        self._wake = asyncio.Event()
        self._frontend, self._caches = Frontend(engine), Caches(engine, clock)
        self._prober = Prober(engine, clock, lambda: self._accepted)
        self.driver: Driver = LocalDriver(store, clock, engine)
        self._accepted = store.accepted()
        self._planned: DesiredState | None = None
        self._trouble: dict[str, str] = {}
        self._observed: list[ObservedDeployment] = []
        self.executor = Executor(store, clock, drive=lambda _: self._wake.set())
        self.sync = SyncLoop(control_plane, self.executor, clock, observed=lambda: self._observed, renew=renew, keys=[
            VerifyKey.from_text(key.public_key) for key in identity.control_plane_keys])
        self.beat_at_s = clock.monotonic_s()

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set; then ends the engine too, if the settings say so.

        Raises:
            BaseExceptionGroup: a loop failed, which none is meant to.
        """
        await self.driver.adopt()
        if self._accepted:
            self.driver.apply(self._accepted.plan)
        await self._observe()
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(loop) for loop in (
                self.driver.run(), self._keep_planned(), self._keep_observed(), self._keep_probed(),
                self._keep_synced())]
            await stop.wait()
            for task in loops:
                task.cancel()
        if self._settings.stop_engine_on_exit:
            log.info("engine_ending", grace_s=self._settings.stop_grace_s)
            await self.driver.stop(self._settings.stop_grace_s)

    async def _keep_synced(self) -> None:
        while True:
            pause_s = await self.sync.poll()
            self.driver.freeze(self._is_superseded)
            self._wake.set()
            await asyncio.sleep(pause_s)

    async def _keep_observed(self) -> None:
        while True:
            await asyncio.sleep(OBSERVE_EVERY_S)
            await self._observe()

    async def _keep_probed(self) -> None:
        while True:
            for over in await self._prober.probe(self.executor.state):
                self.executor.handle(over)
                self.sync.look()
            await asyncio.sleep(PROBE_LOOK_S)

    async def _observe(self) -> None:
        accepted = self._accepted
        figures: dict[str, Figures] = {}
        kv_usage: Mapping[str, float] = {}
        processes = self.driver.observe()
        if accepted and any(process.is_running for process in processes):
            models = [deployment.model_id for deployment in accepted.desired.deployments]
            figures, kv_usage = await asyncio.gather(
                self._frontend.read(accepted.plan.gauges, models),
                self._caches.read(accepted.plan, {process.name for process in processes if process.is_ready}))
        was_ready = self._store.was_ready()
        self._observed = report(View(
            desired=self.executor.state.desired, accepted=accepted.desired if accepted else None,
            retired=self._store.retired(), was_ready=was_ready,
            processes=self.driver.observe(), figures=figures, trouble=self._trouble,
            facts=accepted.plan.facts if accepted else {}, kv_usage=kv_usage))
        ready = {d.deployment_id for d in self._observed if d.phase is DeploymentPhase.READY}
        self._store.remember_ready(ready - was_ready)
        self.executor.handle(Observed(tuple(self._observed)))
        self.sync.look()
        self.beat_at_s = self._clock.monotonic_s()

    async def _keep_planned(self) -> None:
        """Plans whatever is desired; once at each start too, because a new engine may plan the same otherwise."""
        retry_s = FIRST_PLAN_RETRY_S
        while True:
            self._wake.clear()
            desired = self.executor.state.desired
            if desired is None or desired == self._planned or self._is_superseded:
                await self._wake.wait()
            elif await self._plan(desired):
                retry_s = FIRST_PLAN_RETRY_S
            else:
                await asyncio.sleep(ids.jitter(retry_s))
                retry_s = min(2 * retry_s, MAX_PLAN_RETRY_S)

    async def _plan(self, desired: DesiredState) -> bool:
        """Whether the engine answered; a refusal is an answer, and the last good plan stays in force."""
        settings = self._settings
        try:
            plan = await request_plan(settings.plan_command, PlanRequest(
                fleet_id=self._fleet_id, state_dir=settings.engine_state_dir, host=settings.engine_host,
                port_base=settings.engine_port_base, deployments=desired.deployments))
        except Refused as error:
            log.error("plan_refused", deployment_id=error.refusal.deployment_id, reason=error.refusal.error)
            self._trouble = {error.refusal.deployment_id: f"{REFUSED}{error.refusal.error}"}
        except PlanFailed as error:
            log.error("plan_failed", reason=str(error))
            self._trouble = {"": str(error)}
            return False
        else:
            if self._is_superseded or desired is not self.executor.state.desired:
                return True
            self._accepted = Accepted(desired, plan)
            self._store.accept(self._accepted)
            self.driver.apply(plan)
            self._trouble = {}
            log.info("plan_accepted", generation=desired.generation, processes=len(plan.processes))
        self._planned = desired
        return True

    @property
    def _is_superseded(self) -> bool:
        return self.executor.state.standing is Standing.SUPERSEDED
