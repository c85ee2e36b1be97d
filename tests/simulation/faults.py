"""What goes wrong, at random, and how it is mended again."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulation import invariants
from tests.simulation.database import Row
from tests.simulation.edges import Machine, frames_in
from tests.simulation.fleets import AgentDisk

if TYPE_CHECKING:
    from tests.simulation.world import World

Fault = Callable[["World", Random], float | None]


async def act(world: "World") -> None:
    """One fault after the other; each is mended a while later."""
    chance = world.draw("faults")
    names = sorted(FAULTS)
    enabled = chance.sample(names, k=chance.randint(3, len(names)))
    world.network.lost_share = chance.choice((0.0, 0.02, 0.1))
    world.network.repeated_share = chance.choice((0.0, 0.02, 0.1))
    world.network.slow_share = chance.choice((0.0, 0.02, 0.1))
    world.network.stale_share = chance.choice((0.0, 0.0, 0.2))
    world.tables.latency_share = chance.choice((0.05, 0.15, 0.3))
    while True:
        await asyncio.sleep(chance.expovariate(0.4))
        FAULTS[chance.choice(enabled)](world, chance)


def heal(world: "World") -> None:
    """All that is broken is mended; what was dead runs again."""
    world.network.heal()
    world.tables.is_away = False
    world.tables.latency_share = 0.1
    for place in world.places:
        if place.process is None or not place.process.alive:
            world.start_replica(place)
        assert place.process is not None
        place.process.poisons = False
    for fleet, agent in world.agents.items():
        if agent is None or not agent.alive:
            world.start_agent(fleet)
    for machine in world.machines:
        if machine.process is None or not machine.process.alive:
            world.start_edge(machine)


def _kill_replica(world: "World", chance: Random) -> None:
    place = chance.choice(world.places)
    if place.process is None or not place.process.alive:
        return
    world.story.note(f"kill -9 {place.name}")
    place.process.kill()
    _later(world, chance.uniform(0.2, 10.0), lambda: _is_dead(place.process) and world.start_replica(place))


def _kill_agent(world: "World", chance: Random) -> None:
    fleet = chance.choice(sorted(world.agents))
    agent = world.agents[fleet]
    if agent is None or not agent.alive:
        return
    agent.kill()
    loses_disk = chance.random() < 0.2
    world.story.note(f"kill -9 agent-{fleet}{' and its disk is lost' if loses_disk else ''}")
    if loses_disk:
        world.agent_disks[fleet] = AgentDisk(world.engines[world.fleets[fleet]])
        world.story.reach("an agent lost its disk")
    _later(world, chance.uniform(0.1, 20.0), lambda: _is_dead(world.agents[fleet]) and world.start_agent(fleet))


def _kill_edge(world: "World", chance: Random) -> None:
    machine = chance.choice(world.machines)
    if machine.process is None or not machine.process.alive:
        return
    world.story.note(f"kill -9 {machine.name}")
    _stop_edge(world, machine)
    _later(world, chance.uniform(0.1, 8.0), lambda: _is_dead(machine.process) and world.start_edge(machine))


def _power_loss(world: "World", chance: Random) -> None:
    machine = chance.choice(world.machines)
    if machine.process is None or not machine.process.alive:
        return
    world.story.note(f"{machine.name} loses power")
    world.story.powerless.add(machine.name)
    _stop_edge(world, machine)
    before = frames_in(machine.disk)
    if machine.disk.lose_power(chance):
        world.story.reach("a loss of power took unsynced bytes")
    world.clients.excused |= {request_id for _, request_id in before - frames_in(machine.disk)}
    _later(world, chance.uniform(1.0, 8.0), lambda: _is_dead(machine.process) and world.start_edge(machine))


def _crash_engine(world: "World", chance: Random) -> None:
    place = chance.choice(sorted(world.engines))
    if world.engines[place].alive:
        world.story.note(f"the engine of {place} dies")
        world.engines[place].crash()


def _cut(world: "World", chance: Random) -> None:
    """Between two ends: machines and control plane, edges and datacenters, or all of a region."""
    replicas = [place.name for place in world.places]
    edges = [machine.name for machine in world.machines]
    kind = chance.choice(("edge from control plane", "agent from control plane", "edge from datacenter",
                          "datacenter from all", "region from control plane"))
    place = chance.choice(sorted(world.engines))
    if kind == "edge from control plane":
        pairs = [(chance.choice(edges), replica) for replica in replicas]
    elif kind == "agent from control plane":
        pairs = [(place, replica) for replica in replicas]
    elif kind == "edge from datacenter":
        pairs = [(chance.choice(edges), place)]
    elif kind == "datacenter from all":
        pairs = [(place, other) for other in (*replicas, *edges)]
    else:
        region = chance.choice(sorted(world.tables.table("region")))
        near = [machine.name for machine in world.machines if machine.region == region]
        near += [row.id for row in world.tables.table("datacenter").values() if row.region_id == region]
        pairs = [(one, replica) for one in near for replica in replicas]
    length_s = chance.uniform(0.5, 18.0)
    world.story.note(f"cuts {kind} for {length_s:.1f} s: {pairs}")
    world.story.reach(f"cut: {kind}")
    for one, other in pairs:
        world.network.cut(one, other)

    def mend() -> None:
        for one, other in pairs:
            world.network.mend(one, other)

    _later(world, length_s, mend)


def _database_away(world: "World", chance: Random) -> None:
    if world.tables.is_away:
        return
    world.story.note("the database goes away")
    world.story.reach("the database went away")
    world.tables.is_away = True

    def back() -> None:
        world.tables.is_away = False

    _later(world, chance.uniform(0.5, 12.0), back)


def _older_database(world: "World", chance: Random) -> None:
    """A copy of the database is kept; a while later it takes the place of the database, and an operator recovers."""
    if world.is_restored:
        return
    world.is_restored = True
    copy = {table: dict(rows) for table, rows in world.tables.rows.items()}
    _later(world, chance.uniform(2.0, 15.0), lambda: _restore(world, chance, copy))


def _restore(world: "World", chance: Random, copy: dict[str, dict[object, Row]]) -> None:
    for place in world.places:
        if place.process is not None and place.process.alive:
            place.process.kill()
    world.story.note("an older copy of the database takes the place of the database")
    world.story.reach("an older database took the place of the newer one")
    world.tables.rows = copy
    world.tables.holders.clear()
    invariants.watch(world)
    for place in world.places:
        world.start_replica(place)
    world.loop.call_later(chance.uniform(1.0, 10.0), world.start_recovery)


def _slow_disk(world: "World", chance: Random) -> None:
    slow, usual = world.draw(f"disk {world.loop.now_s}"), world.loop.thread_s
    world.story.note("disks are slow")
    world.loop.thread_s = lambda: slow.uniform(0.05, 0.8)

    def mend() -> None:
        world.loop.thread_s = usual

    _later(world, chance.uniform(1.0, 8.0), mend)


def _poison(world: "World", chance: Random) -> None:
    for place in world.places:
        if place.process is not None:
            place.process.poisons = True

    def stop() -> None:
        for place in world.places:
            if place.process is not None:
                place.process.poisons = False

    _later(world, chance.uniform(2.0, 10.0), stop)


def _stop_edge(world: "World", machine: Machine) -> None:
    assert machine.process is not None
    machine.process.kill()
    for request_id, name in world.clients.opened.items():
        request = world.clients.requests[request_id]
        if name == machine.name and not request.done:
            request.broken = True


def _later(world: "World", delay_s: float, then: Callable[[], object]) -> None:
    world.loop.call_later(delay_s, then)


def _is_dead(process: object) -> bool:
    return process is None or not getattr(process, "alive", False)


FAULTS: dict[str, Callable[["World", Random], None]] = {
    "agent": _kill_agent, "cut": _cut, "database": _database_away, "disk": _slow_disk, "edge": _kill_edge,
    "engine": _crash_engine, "older": _older_database, "poison": _poison, "power": _power_loss,
    "replica": _kill_replica,
}
