"""Fleets: an engine that serves and outlives its agent, and the product's agent on top of it, with what it stores."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from control_plane.contracts.agent_sync import CommandState, DesiredState, ObservedDeployment
from control_plane.contracts.deployment import DesiredDeployment, EngineFacts
from control_plane.contracts.signing import VerifyKey
from fleet_agent import core
from fleet_agent.core import AgentState, Observed, Probed, Standing
from fleet_agent.executor import Executor
from fleet_agent.store import Fenced
from fleet_agent.sync import SyncLoop
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import Process, SkewedClock
from tests.simulation.story import Story

OBSERVE_EVERY_S = PROBE_EVERY_S = 1.0
FACTS = EngineFacts(identity="same")


@dataclass
class Running:
    """A deployment as its engine runs it."""

    desired: DesiredDeployment
    ready_at_s: float
    was_ready: bool = False


class Engine:
    """One fleet's cluster. `alive`: its frontend answers. `inside` are the streams that it works on."""

    def __init__(self, fleet_id: str, datacenter_id: str, story: Story, loop: VirtualLoop, chance: Random) -> None:
        self.fleet_id, self.datacenter_id = fleet_id, datacenter_id
        self.story, self.loop, self.chance = story, loop, chance
        self.alive = True
        self.running: dict[str, Running] = {}
        self.generation = self.epoch = (0, 0)
        self.inside: dict[str, dict[object, Callable[[], None]]] = {}

    def drive(self, desired: DesiredState, state: AgentState) -> None:
        """Becomes what is desired, in a while; what is the same but for its number goes on."""
        epoch, generation = (state.lineage, state.epoch), (state.lineage, desired.generation)
        self.story.require(epoch >= self.epoch, "no action under a stale epoch",
                           f"{self.fleet_id} is driven under epoch {epoch} after {self.epoch}")
        self.story.require(generation >= self.generation, "no generation falls",
                           f"{self.fleet_id} is driven to generation {generation} after {self.generation}")
        self.epoch, self.generation = epoch, generation
        for one in desired.deployments:
            known = self.running.get(one.deployment_id)
            if known is None or (known.desired.engine, known.desired.pools) != (one.engine, one.pools):
                self.running[one.deployment_id] = Running(one, self.loop.now_s + self.chance.uniform(0.3, 3.0))
            else:
                known.desired = one

    def crash(self) -> None:
        """All of it dies; every stream inside is reset."""
        self.alive = False
        for streams in self.inside.values():
            for reset in list(streams.values()):
                reset()
        self.inside.clear()
        for one in self.running.values():
            one.ready_at_s = float("inf")

    def start(self) -> None:
        """The agent's supervision brings it back."""
        self.alive = True
        for one in self.running.values():
            one.ready_at_s = self.loop.now_s + self.chance.uniform(0.3, 3.0)

    def serves(self, deployment_id: str) -> bool:
        running = self.running.get(deployment_id)
        return self.alive and running is not None and self.loop.now_s >= running.ready_at_s

    def observe(self) -> list[ObservedDeployment]:
        """What an agent sees of it now."""
        seen = []
        for name, one in sorted(self.running.items()):
            is_ready = self.serves(name)
            one.was_ready = one.was_ready or is_ready
            pools = core.pools_of(one.desired, {pool.role: pool.replicas for pool in one.desired.pools}
                                  if is_ready else {})
            phase = core.phase_of(pools, is_ready, one.was_ready)
            count = len(self.inside.get(name, ())) if self.alive else 0
            seen.append(ObservedDeployment(
                deployment_id=name, observed_generation=one.desired.generation, phase=phase, pools=pools,
                inflight=count, queued=0, facts=FACTS))
        return seen


@dataclass
class AgentDisk:
    """Stands for the agent's store, with the same refusal of lower numbers; what is saved survives every crash."""

    engine: Engine
    state: AgentState = field(default_factory=AgentState)
    commands: dict[str, CommandState] = field(default_factory=dict)

    def load(self) -> AgentState:
        return replace(self.state, standing=Standing.ASKING)

    def save(self, state: AgentState) -> None:
        """As `Store.save`.

        Raises:
            Fenced: a number would fall.
        """
        before = self.state
        story, fleet = self.engine.story, self.engine.fleet_id
        falls = state.epoch < before.epoch or state.generation < before.generation or state.last_seq < before.last_seq
        if state.lineage < before.lineage or (state.lineage == before.lineage and falls):
            story.violate("no action under a stale epoch", f"the agent of {fleet} would go back to epoch {state.epoch},"
                          f" generation {state.generation}, seq {state.last_seq}")
            raise Fenced("lower numbers")
        for tracked in state.commands:
            was = self.commands.get(tracked.command.id)
            if was is None:
                story.note(f"has command {tracked.command.seq} ({tracked.command.kind}): {tracked.state.value}")
                if tracked.state is CommandState.REJECTED:
                    story.reach("an agent rejected a command")
            story.require(
                was not in core.TERMINAL or tracked.state in (was, CommandState.REJECTED),
                "no command has effect twice",
                f"{fleet}: command {tracked.command.id} is {tracked.state} after {was}")
            self.commands[tracked.command.id] = tracked.state
        self.state = state


class Agent(Process):
    """One boot of a fleet's agent."""

    def __init__(self, engine: Engine, disk: AgentDisk, clock: SkewedClock, keys: list[VerifyKey],
                 upward: Callable[[Process], object]) -> None:
        super().__init__(f"agent-{engine.fleet_id}", engine.story, engine.loop)
        self.engine, self.disk = engine, disk
        self.observed: list[ObservedDeployment] = []
        self.executor = Executor(disk, clock, drive=self._drive)  # type: ignore[arg-type]
        self.sync = SyncLoop(
            upward(self), self.executor, clock, observed=lambda: self.observed, keys=keys)  # type: ignore[arg-type]
        self._wake = asyncio.Event()
        for loop in (self._keep_synced(), self._keep_observed(), self._keep_driven(), self._keep_probed()):
            self.spawn(loop)

    def _drive(self, desired: DesiredState) -> None:
        self._wake.set()

    async def _keep_driven(self) -> None:
        """As the agent's planning: a while after it was stored, whatever is stored then is driven."""
        driven: DesiredState | None = None
        while True:
            await asyncio.sleep(self.engine.chance.uniform(0.05, 0.8))
            state = self.disk.state
            wanted = self.executor.state.desired
            if wanted is not None and wanted != driven and self.executor.state.standing is not Standing.SUPERSEDED:
                self.story.require(
                    (self.executor.state.lineage, self.executor.state.epoch) <= (state.lineage, state.epoch)
                    and (self.executor.state.lineage, wanted.generation) <= (state.lineage, state.generation),
                    "durable before acted on", f"{self.name} drives generation {wanted.generation} before it is stored")
                self.engine.drive(wanted, self.executor.state)
                driven = wanted
            self._wake.clear()
            await self._wake.wait()

    async def _keep_observed(self) -> None:
        while True:
            if not self.engine.alive and self.engine.chance.random() < 0.2:
                self.engine.start()
                self.story.note("starts its engine again")
            self.observed = self.engine.observe()
            self.executor.handle(Observed(tuple(self.observed)))
            self.sync.look()
            await asyncio.sleep(OBSERVE_EVERY_S)

    async def _keep_probed(self) -> None:
        """As the prober of commands: asks the engine for a token, which it gives when it serves."""
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            for tracked in self.executor.state.open_probes:
                is_answered = self.engine.serves(tracked.command.deployment_id)
                await asyncio.sleep(self.engine.chance.uniform(0.05, 0.3))
                self.executor.handle(Probed(tracked.command.id, is_answered, "simulated"))
                self.sync.look()

    async def _keep_synced(self) -> None:
        while True:
            pause_s = await self.sync.poll()
            self._wake.set()
            self.story.step()
            await asyncio.sleep(pause_s)

