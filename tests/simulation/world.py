"""One seed: a world, what operators and clients do in it, what goes wrong, and what must hold all the same."""

import asyncio
import hashlib
from collections.abc import Callable
from random import Random
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from control_plane.contracts import ids
from control_plane.contracts.signing import SigningKey
from tests.simulation import faults, invariants, operators
from tests.simulation.database import Tables
from tests.simulation.edges import Clients, Edge, Machine, Request
from tests.simulation.fleets import Agent, AgentDisk, Engine
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Network
from tests.simulation.process import Process, SkewedClock
from tests.simulation.replicas import Place, Replica
from tests.simulation.seams import installed
from tests.simulation.story import WHO, Story
from tests.simulation.topology import MODELS, declare
from tests.simulation.upward import Answer, Upward

SETTLE_S, TROUBLE_S, HEALING_S, PATIENCE_S = 5.0, 28.0, 300.0, 30.0


class World:
    """Owns everything of one seed. `agents` are by fleet, `engines` by datacenter."""

    def __init__(self, seed: int, tell: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.loop = VirtualLoop()
        self.chance = Random(seed)
        self.story = Story(lambda: self.loop.now_s, tell)
        self.network = Network(self.loop, self.draw("network"), self.story)
        self.tables = Tables(self.loop, self.draw("database"), self.story)
        private = hashlib.sha256(b"simulation").digest()
        self.key = SigningKey(Ed25519PrivateKey.from_private_bytes(private))
        self.fleets = declare(self.tables, self.chance)
        self.models = [*self.tables.table("model")]
        self.places = [Place("cp-1"), Place("cp-2")]
        self.engines = {place: Engine(fleet, place, self.story, self.loop, self.draw(fleet))
                        for fleet, place in self.fleets.items()}
        self.agent_disks = {fleet: AgentDisk(self.engines[place]) for fleet, place in self.fleets.items()}
        self.agents: dict[str, Agent | None] = dict.fromkeys(self.fleets)
        regions = sorted(self.tables.table("region"))
        self.machines = [Machine(f"edge-{n + 1}", regions[n % len(regions)])
                         for n in range(self.chance.choice((2, 2, 3)))]
        self.clients = Clients()
        self.is_restored = False
        self.recovering: list[asyncio.Task[None]] = []
        self.earlier: dict[str, list[Answer]] = {}
        self.loop.thread_s = lambda: 0.001 + 0.003 * self.chance.random()

    def draw(self, name: str) -> Random:
        """A source of chance of its own, so that one part's draws do not move another's."""
        return Random(f"{self.seed}:{name}")

    def run(self) -> Story:
        """All of it. Afterwards the story says whether anything was violated."""
        with installed(self.loop, self.draw("ids"), self.story):
            try:
                self.loop.run_until_complete(self._live())
            finally:
                self._bury()
        return self.story

    def clock(self, name: str) -> SkewedClock:
        """The clock of a machine, off by up to a second and drifting."""
        chance = self.draw(f"clock {name}")
        return SkewedClock(self.loop, chance.uniform(-1.0, 1.0), 1 + chance.uniform(-2e-4, 2e-4))

    def start_replica(self, place: Place) -> Replica:
        place.process = Replica(place.name, self.story, self.loop, self.tables, self.clock(place.name), self.key,
                                self.draw(f"{place.name}{self.loop.now_s}"))
        return place.process

    def start_agent(self, fleet: str) -> None:
        engine = self.engines[self.fleets[fleet]]
        self.agents[fleet] = Agent(
            engine, self.agent_disks[fleet], self.clock(fleet), [self.key.public],
            lambda process: self.upward(process, engine.datacenter_id, f"agent-{fleet}", fleet))

    def start_edge(self, machine: Machine) -> None:
        token = WHO.set(machine.name)
        machine.process = Edge(
            machine, self.story, self.loop, self.network, self.draw(f"{machine.name}{self.loop.now_s}"),
            self.clock(machine.name), [self.key.public],
            lambda process: self.upward(process, machine.name, machine.name, machine.region), self.engines,
            self.clients)
        WHO.reset(token)

    def start_recovery(self) -> None:
        """An operator recovers from an older copy of the database, whatever else happens."""
        self.recovering.append(self.loop.create_task(operators.recover(self)))

    def upward(self, process: Process, home: str, machine_id: str, subject: str) -> Upward:
        """The way up for a machine: both replicas, in its own order."""
        order = list(self.places)
        self.chance.shuffle(order)
        return Upward(self.network, process, home, machine_id, subject, order,
                      self.earlier.setdefault(machine_id, []))

    async def _live(self) -> None:
        self.story.note(f"{len(self.fleets)} datacenters, {len(self.machines)} edges, models {', '.join(self.models)}")
        invariants.watch(self)
        first = self.start_replica(self.places[0])
        await first.publish()
        self.start_replica(self.places[1])
        for fleet in self.fleets:
            self.start_agent(fleet)
        for machine in self.machines:
            self.start_edge(machine)
        await asyncio.sleep(SETTLE_S)
        world = Process("world", self.story, self.loop)
        world.spawn(self._send_requests())
        actors = [world.spawn(operators.act(self, number)) for number in (1, 2)]
        troubles = world.spawn(faults.act(self))
        await self._until(self.loop.now_s + TROUBLE_S)
        for task in (*actors, troubles):
            task.cancel()
        faults.heal(self)
        self.story.note("the faults are over")
        await self._until(self.loop.now_s + HEALING_S, lambda: invariants.is_converged(self))
        invariants.at_the_end(self)
        world.kill()

    async def _until(self, end_s: float, is_done: Callable[[], bool] = lambda: False) -> None:
        while self.loop.now_s < end_s and self.story.violation is None and not is_done():  # noqa: ASYNC110
            await asyncio.sleep(0.5)

    async def _send_requests(self) -> None:
        chance = self.draw("clients")
        until_s = self.loop.now_s + TROUBLE_S
        while self.loop.now_s < until_s:
            await asyncio.sleep(chance.expovariate(1.5))
            edge = chance.choice(self.machines).process
            if edge is None or not edge.alive:
                continue
            request = Request(ids.uuid7(edge.clock.time_s()), chance.choice(self.models), f"s{chance.randrange(20)}",
                              chance.randrange(1, 120), PATIENCE_S if chance.random() < 0.9 else chance.uniform(0, 3))
            self.clients.requests[request.id] = request
            edge.spawn(edge.handle(request))

    def _bury(self) -> None:
        """Ends every process, so that nothing of this seed is left."""
        processes: list[Any] = [place.process for place in self.places]
        processes += [*self.agents.values(), *(machine.process for machine in self.machines)]
        for process in processes:
            if process is not None and process.alive:
                process.kill()
        for _ in range(10):
            pending = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
            if not pending:
                break
            for task in pending:
                task.cancel()
            self.loop.run_until_complete(_pause())
        self.loop.close()


async def _pause() -> None:
    await asyncio.sleep(0.01)


__all__ = ["MODELS", "World"]
