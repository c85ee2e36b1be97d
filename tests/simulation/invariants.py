"""What must hold: after every commit, and when the faults are over."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from control_plane.contracts.operations import FINAL, OperationKind, OperationState
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.machine import OPEN_COMMANDS, OPEN_OPERATIONS, CommandStatus
from control_plane.topology.states import RAMPED, effective_weight
from fleet_agent.core import TERMINAL
from tests.simulation.database import Session
from tests.simulation.replicas import PACE

if TYPE_CHECKING:
    from tests.simulation.world import World

MOST_REPORTS = 6
LONGEST_TRANSACTION_S = 10.0
COMMAND_MOVES = {status: {status} | (set(CommandStatus) - {CommandStatus.ISSUED} if status in OPEN_COMMANDS else set())
                 for status in CommandStatus}


class Watcher:
    """Looks at every commit. It remembers what must never fall, and who did what."""

    def __init__(self, world: "World") -> None:
        self.world, self.story, self.tables = world, world.story, world.tables
        self._head = (0, 0)
        self._epochs: dict[str, tuple[int, str]] = {}
        self._generations: dict[str, int] = {}
        self._seqs: dict[str, int] = {}
        self._commands: dict[str, CommandStatus] = {}
        self._operations: dict[str, OperationState] = {}
        self._unheard: dict[str, int] = {}
        self._traffic = {place.id: place.traffic_state for place in self.tables.table("datacenter").values()}
        self._workers: dict[str, set[str]] = {}

    def look(self, session: Session) -> None:
        """One transaction was committed."""
        self.story.step()
        for (table, key), row in session.written.items():
            look = getattr(self, f"_{table}", None)
            if look is not None:
                look(key, row, session)

    def _routing_snapshot(self, key: Any, row: Any, session: Session) -> None:
        self.story.require(key > self._head, "no snapshot version falls", f"{key} was published after {self._head}")
        self._head = key
        self.story.note(f"published {key[0]}.{key[1]} for {row.cause}", session.process.name)
        body = msgspec.json.decode(row.body)
        told = {place["id"]: (place["state"], place["weight"], place["evacuate"]) for place in body["datacenters"]}
        stored = {place.id: (place.traffic_state.value, effective_weight(
            place.traffic_state, place.weight, place.ramp_percent), place.evacuate)
            for place in self.tables.table("datacenter").values()}
        self.story.require(told == stored, "a snapshot holds the newest facts",
                           f"{key} says {told}, and it is {stored}")

    def _agent_lease(self, fleet: str, row: Any, session: Session) -> None:
        epoch, boot_id = self._epochs.get(fleet, (0, ""))
        self.story.require(row.epoch >= epoch, "no epoch falls", f"{fleet}: {row.epoch} after {epoch}")
        self.story.require(row.epoch > epoch or row.boot_id == boot_id, "an epoch has one holder",
                           f"{fleet}: epoch {epoch} is of {boot_id} and of {row.boot_id}")
        self._epochs[fleet] = (row.epoch, row.boot_id)

    def _fleet_view(self, fleet: str, row: Any, session: Session) -> None:
        """An agent repeats each outcome until it is heard, so a few reports later it has been."""
        told = self.world.agent_disks[fleet].commands
        for command in self.tables.table("command").values():
            if command.fleet_id != fleet or command.status not in OPEN_COMMANDS or told.get(command.id) not in TERMINAL:
                continue
            count = self._unheard[command.id] = self._unheard.get(command.id, 0) + 1
            self.story.require(count < MOST_REPORTS, "every outcome of a command is heard",
                               f"{fleet} ended {command.id} {count} reports ago, and it is {command.status.value}")

    def _fleet(self, fleet: str, row: Any, session: Session) -> None:
        self.story.require(row.generation >= self._generations.get(fleet, 0), "no generation falls", fleet)
        self.story.require(row.command_seq >= self._seqs.get(fleet, 0), "no sequence number falls", fleet)
        self._generations[fleet], self._seqs[fleet] = row.generation, row.command_seq

    def _command(self, command_id: str, row: Any, session: Session) -> None:
        before = self._commands.get(command_id, CommandStatus.ISSUED)
        if before is row.status and before not in OPEN_COMMANDS:
            return
        self.story.require(row.status in COMMAND_MOVES[before], "no command leaves its end",
                           f"{command_id}: {row.status} after {before}")
        self._commands[command_id] = row.status

    def _operation(self, operation_id: str, row: Any, session: Session) -> None:
        before = self._operations.get(operation_id)
        if before is row.state:
            return
        self.story.require(before not in FINAL, "no operation leaves its end", f"{operation_id}: {row.state}")
        self._operations[operation_id] = row.state
        self.story.note(f"{row.kind.value} of {row.subject} is {row.state.value}"
                        + (f": {row.error}" if row.error else ""), session.process.name)
        self.story.reach(f"{row.kind.value} {row.state.value}")
        if row.kind is OperationKind.FAILOVER and any(
                other.subject == row.subject and other.kind is OperationKind.DRAIN
                for other in self.tables.table("operation").values()):
            self.story.reach("a failover after a drain")
        if row.kind is OperationKind.DRAIN and row.state is OperationState.SUCCEEDED:
            self._check_drained(row)
        self._check_claims()

    def _check_drained(self, operation: Any) -> None:
        """Nothing is open where a drain ended well, at any edge that was heard from; unless it says what was left."""
        told = " ".join(step.detail for step in self.tables.table("operation_step").values()
                        if step.operation_id == operation.id)
        if any(word in told for word in ("deadline", "excused", "not heard", "not idle", "left", "without")):
            return
        self.story.reach("a drain ended with nothing open")
        oldest = self.tables.now() - timedelta(seconds=PACE.edge_excused_after_s)
        for machine in self.world.machines:
            row = self.tables.table("edge").get(machine.name)
            if row is None or row.last_seen_at < oldest or machine.process is None or not machine.process.alive:
                continue
            left = machine.process.open_requests.counts().get(operation.datacenter_id, 0)
            self.story.require(left == 0, "a drained datacenter is empty",
                               f"{machine.name} has {left} open in {operation.datacenter_id}: {told}")

    def _operation_step(self, key: Any, row: Any, session: Session) -> None:
        workers = self._workers.setdefault(key[0], set())
        workers.add(session.process.name)
        if len(workers) > 1:
            self.story.reach("an operation was continued by the other replica")

    def _datacenter(self, place: str, row: Any, session: Session) -> None:
        cause, before = str(row.changed_by), self._traffic[place]
        self._traffic[place] = row.traffic_state
        if before is not TrafficState.ACTIVE or row.traffic_state is before or not cause.startswith("operation:"):
            return
        operation = self.tables.table("operation").get(cause.removeprefix("operation:"))
        if operation is None or operation.forced:
            return
        active = [one.id for one in self.tables.table("datacenter").values()
                  if one.traffic_state is TrafficState.ACTIVE]
        self.story.require(bool(active), "the last datacenter is never taken",
                           f"{operation.kind.value} {operation.id} made {place} {row.traffic_state.value}:"
                           " none is active")

    def _check_claims(self) -> None:
        held: dict[str, str] = {}
        for row in self.tables.table("operation").values():
            if row.state in OPEN_OPERATIONS and row.datacenter_id is not None:
                other = held.setdefault(row.datacenter_id, row.id)
                self.story.require(other == row.id, "a resource has one operation",
                                   f"{row.datacenter_id} has {other} and {row.id}")

    def _edge(self, edge_id: str, row: Any, session: Session) -> None:
        if row.nack_error:
            self.story.reach("an edge's refusal was recorded")


def watch(world: "World") -> None:
    """Has every commit looked at; what was seen before is forgotten."""
    world.tables.on_commit[:] = [Watcher(world).look]


def is_converged(world: "World") -> bool:
    """Whether nothing is left to come."""
    return not any(True for _ in unsettled(world))


def unsettled(world: "World") -> Any:
    """What has yet to come to an end, in words: the invariant, and what it is."""
    tables = world.tables
    for row in tables.table("operation").values():
        if row.state in OPEN_OPERATIONS and row.state is not OperationState.PAUSED:
            yield "every operation ends", f"{row.kind.value} {row.id} of {row.subject} is {row.state.value}"
    head = tables.table("routing_head")[True]
    for machine in world.machines:
        row = tables.table("edge").get(machine.name)
        acked = (row.acked_lineage, row.acked_version) if row else None
        if acked != (head.lineage, head.version):
            yield ("every edge comes to the newest snapshot",
                   f"{machine.name} told {acked}, the newest is {head.lineage}.{head.version}")
    yield from _unsettled_fleets(world)
    yield from _unsettled_usage(world)


def _unsettled_fleets(world: "World") -> Any:
    tables, now = world.tables, world.tables.now()
    for fleet, place in world.fleets.items():
        lease = tables.table("agent_lease").get(fleet)
        if lease is None or lease.expires_at <= now:
            yield "every agent is heard again", fleet
        if world.engines[place].generation[1] != tables.table("fleet")[fleet].generation:
            yield "every fleet comes to its generation", f"{fleet} is at {world.engines[place].generation}"
    for row in tables.table("deployment").values():
        if row.phase != "ready" or (row.observed_generation or 0) < row.generation:
            yield "every deployment is ready again", f"{row.id} is {row.phase}"
    for row in tables.table("command").values():
        told = world.agent_disks[row.fleet_id].commands.get(row.id)
        if row.status in OPEN_COMMANDS and told in TERMINAL:
            yield ("every outcome of a command is heard",
                   f"{row.fleet_id} ended {row.id}: {told}, and it is {row.status}")


def _unsettled_usage(world: "World") -> Any:
    stored = world.tables.table("usage_record")
    for request_id, edge in world.clients.opened.items():
        if request_id in stored or request_id in world.clients.excused:
            continue
        yield "every request has its record", f"{request_id} of {edge}"
    for request in world.clients.requests.values():
        if request.id in world.clients.opened and not (request.done or request.broken):
            yield "every request ends", str(request.id)


def at_the_end(world: "World") -> None:
    """The faults are over for long: everything has come to its end, and every token is billed once."""
    story, tables = world.story, world.tables
    for invariant, words in unsettled(world):
        story.violate(invariant, words)
    claims = {row.operation_id for row in tables.table("operation_claim").values()}
    for operation_id in sorted(claims):
        story.require(tables.table("operation")[operation_id].state in OPEN_OPERATIONS,
                      "no claim outlives its operation", operation_id)
    for key, holder in tables.holders.items():
        age_s = (tables.now() - holder.began).total_seconds()
        story.require(age_s < LONGEST_TRANSACTION_S, "no lock is left", f"{key} is held since {age_s:.0f} s")
    _check_usage(world)
    for row in tables.table("datacenter").values():
        if row.traffic_state in RAMPED and f"datacenter:{row.id}" not in tables.table("operation_claim"):
            story.reach("a datacenter was left on its way")


def _check_usage(world: "World") -> None:
    story, stored = world.story, world.tables.table("usage_record")
    total_usd: Any = 0
    for request_id, row in stored.items():
        total_usd += row.cost_usd
        request = world.clients.requests.get(request_id)
        story.require(request is not None and request_id in world.clients.opened, "no record is made up",
                      str(request_id))
        if request is not None and request.done and request_id not in world.clients.excused:
            story.require((row.outcome.value, row.completion_tokens) == ("completed", request.received),
                          "billed is delivered", f"{request_id}: {row.outcome.value}, {row.completion_tokens} tokens"
                          f" are billed and {request.received} were delivered")
    spent = world.tables.table("spend")
    for key, row in spent.items():
        if key[0] == "team" and key[2] == "lifetime":
            story.require(row.spent_usd == total_usd, "no record is booked twice",
                          f"{row.spent_usd} USD are booked for records of {total_usd}")


__all__ = ["Watcher", "at_the_end", "is_converged", "unsettled", "watch"]
