"""What the agent believes and how events change it: fencing, commands and phases. Pure; performs nothing.

Three numbers fence this fleet, and none of them ever falls within a `lineage`: the lease's `epoch`, the desired state's
`generation` and the commands' `seq`. A higher lineage, which only a signature proves, starts them anew. An answer that
carries a lower one is from a control plane, or from a delayed packet, that no longer speaks for the fleet, and is
refused.

The lease is for those who give orders, not for those who serve. New desired state and new commands come only inside a
sync's answer, so they carry a fresh lease by nature and need no clock of ours to guard them. Everything else that the
agent does, above all restarting a crashed process of the generation that it already accepted, goes on for ever without
a lease: a control plane that is away must not cost a fleet its workers. Only being superseded (another boot of the
agent holds the lease) stops it: then it changes nothing any more and leaves the cluster to serve.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from control_plane.contracts.agent_sync import (
    AgentSyncAnswer,
    Command,
    CommandAck,
    CommandKind,
    CommandState,
    DeploymentPhase,
    DesiredState,
    ObservedDeployment,
    ObservedPool,
    requests_inside,
)
from control_plane.contracts.deployment import DesiredDeployment
from control_plane.contracts.recovery import FIRST_LINEAGE

TERMINAL = frozenset({CommandState.SUCCEEDED, CommandState.FAILED, CommandState.REJECTED, CommandState.EXPIRED})


class Standing(StrEnum):
    """What this boot of the agent is to the control plane."""

    ASKING = "asking"
    LEADING = "leading"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class TrackedCommand:
    """A command that was received; `deadline_at_s` is in this host's Unix time, so that it survives a restart."""

    command: Command
    deadline_at_s: float
    state: CommandState
    result: str = ""

    @property
    def is_open(self) -> bool:
        return self.state not in TERMINAL


@dataclass(frozen=True, slots=True)
class AgentState:
    """All that must outlive the process, and the standing, which must not. `epoch` 0 is before the first lease; it,
    the generation and the sequence number are of `lineage`."""

    lineage: int = FIRST_LINEAGE
    epoch: int = 0
    generation: int = 0
    desired: DesiredState | None = None
    last_seq: int = 0
    commands: tuple[TrackedCommand, ...] = ()
    standing: Standing = Standing.ASKING

    @property
    def has_open_commands(self) -> bool:
        return any(tracked.is_open for tracked in self.commands)

    @property
    def open_probes(self) -> list[TrackedCommand]:
        """Probes that were ordered and are not over; none for who must not act."""
        if self.standing is Standing.SUPERSEDED:
            return []
        return [tracked for tracked in self.commands if tracked.is_open and tracked.command.kind is CommandKind.PROBE]

    def acks(self) -> list[CommandAck]:
        """What to tell the control plane of each command that it still lists."""
        return [CommandAck(command_id=t.command.id, state=t.state, result=t.result) for t in self.commands]


@dataclass(frozen=True, slots=True)
class Answered:
    """The control plane granted or renewed the lease. `proved_lineage` is what its signature proves, 0 for nothing."""

    answer: AgentSyncAnswer
    proved_lineage: int = 0


@dataclass(frozen=True, slots=True)
class LeaseMoved:
    """409: the epoch that was sent is not the lease's any more; ask for the lease anew."""


@dataclass(frozen=True, slots=True)
class LeaseTaken:
    """410: another boot holds the lease."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A fresh look at the cluster."""

    deployments: tuple[ObservedDeployment, ...]


@dataclass(frozen=True, slots=True)
class Probed:
    """A probe that was ordered is over; `result` says in words what came of it."""

    command_id: str
    is_answered: bool
    result: str


Event = Answered | LeaseMoved | LeaseTaken | Observed | Probed


@dataclass(frozen=True, slots=True)
class Save:
    """Make the state durable. Always before anything that follows from it."""

    state: AgentState


@dataclass(frozen=True, slots=True)
class Drive:
    """Turn the cluster into this."""

    desired: DesiredState


@dataclass(frozen=True, slots=True)
class Complain:
    """Tell people that something was refused."""

    reason: str


Action = Save | Drive | Complain


def step(state: AgentState, event: Event, now_s: float) -> tuple[AgentState, list[Action]]:
    """The state after the event, and what to do, in order. `now_s` is Unix time."""
    match event:
        case Answered(answer, proved_lineage):
            return _answered(state, answer, proved_lineage, now_s)
        case LeaseMoved():
            return replace(state, standing=Standing.ASKING), []
        case LeaseTaken():
            return replace(state, standing=Standing.SUPERSEDED), []
        case Observed(deployments):
            return _observed(state, deployments, now_s)
        case Probed():
            return _probed(state, event)


def _answered(state: AgentState, answer: AgentSyncAnswer, proved_lineage: int,
              now_s: float) -> tuple[AgentState, list[Action]]:
    refusal = _refusal(state, answer, proved_lineage)
    if refusal:
        return state, [Complain(refusal)]
    before = state
    if answer.lineage > state.lineage:
        state = replace(state, lineage=answer.lineage, epoch=0, generation=0, last_seq=0, commands=())
    after = replace(state, epoch=answer.epoch, standing=Standing.LEADING)
    after = _take_commands(after, answer.commands, now_s)
    actions: list[Action] = []
    desired = answer.desired
    if desired is not None and desired.generation < state.generation:
        actions.append(Complain(f"refused generation {desired.generation}: this fleet has seen {state.generation}"))
    elif desired is not None and (desired.generation > state.generation or state.desired is None):
        after = replace(after, generation=desired.generation, desired=desired)
        actions.append(Drive(desired))
    return after, _saving(before, after, actions)


def _refusal(state: AgentState, answer: AgentSyncAnswer, proved_lineage: int) -> str:
    """Why the answer does not speak for this fleet, empty if it does. A number alone begins no lineage: whoever can
    answer could wipe the fences with it."""
    if answer.lineage < state.lineage:
        return f"refused an answer of lineage {answer.lineage}: this fleet has seen {state.lineage}"
    if answer.lineage > state.lineage and answer.lineage != proved_lineage:
        return f"refused an answer of lineage {answer.lineage}: no signature proves that it follows {state.lineage}"
    if answer.lineage == state.lineage and answer.epoch < state.epoch:
        return f"refused an answer of epoch {answer.epoch}: this fleet has seen {state.epoch}"
    return ""


def _take_commands(state: AgentState, listed: Sequence[Command], now_s: float) -> AgentState:
    """Drops what the control plane stopped listing (it has the ack, or withdrew the command) and takes what is new."""
    by_id = {command.id: command for command in listed}
    kept = [tracked for tracked in state.commands if tracked.command.id in by_id]
    known = {tracked.command.id for tracked in kept}
    last_seq = state.last_seq
    for command in sorted(by_id.values(), key=lambda command: command.seq):
        if command.id not in known:
            kept.append(_receive(command, state.epoch, last_seq, now_s))
            last_seq = max(last_seq, command.seq)
    return replace(state, commands=tuple(kept), last_seq=last_seq)


def _receive(command: Command, epoch: int, last_seq: int, now_s: float) -> TrackedCommand:
    refusal = ""
    if command.epoch < epoch:
        refusal = f"issued under epoch {command.epoch}, the lease is at {epoch}"
    elif command.seq <= last_seq:
        refusal = f"sequence number {command.seq} is not above {last_seq}"
    state = CommandState.REJECTED if refusal else CommandState.ACCEPTED
    return TrackedCommand(command, now_s + command.deadline_s, state, refusal)


def _observed(
    state: AgentState, deployments: tuple[ObservedDeployment, ...], now_s: float
) -> tuple[AgentState, list[Action]]:
    if state.standing is Standing.SUPERSEDED:
        return state, []
    busy = _busy(deployments)
    after = replace(state, commands=tuple(_progress(tracked, busy, now_s) for tracked in state.commands))
    return after, _saving(state, after, [])


def _progress(tracked: TrackedCommand, busy: int | None, now_s: float) -> TrackedCommand:
    if not tracked.is_open:
        return tracked
    if now_s >= tracked.deadline_at_s:
        left = "an unknown number of" if busy is None else str(busy)
        late = (f"{left} requests were left inside the engine" if tracked.command.kind is CommandKind.DRAIN
                else "no answer in time")
        return replace(tracked, state=CommandState.EXPIRED, result=late)
    if busy == 0 and tracked.command.kind is CommandKind.DRAIN:
        return replace(tracked, state=CommandState.SUCCEEDED, result="no request is left inside the engine")
    return tracked


def _probed(state: AgentState, probe: Probed) -> tuple[AgentState, list[Action]]:
    outcome = CommandState.SUCCEEDED if probe.is_answered else CommandState.FAILED
    after = replace(state, commands=tuple(
        replace(tracked, state=outcome, result=probe.result)
        if tracked.command.id == probe.command_id and tracked in state.open_probes else tracked
        for tracked in state.commands))
    return after, _saving(state, after, [])


def _busy(deployments: Sequence[ObservedDeployment]) -> int | None:
    """Requests inside the engine, or None when a deployment could not be read: unknown is never taken for idle."""
    counts = [requests_inside(deployment.inflight, deployment.queued) for deployment in deployments]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _saving(before: AgentState, after: AgentState, actions: list[Action]) -> list[Action]:
    durable = replace(after, standing=before.standing)
    return actions if durable == before else [Save(after), *actions]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the frontend says of one model; null where it could not be read."""

    model_ready: bool | None = None
    inflight: int | None = None
    queued: int | None = None


def pools_of(deployment: DesiredDeployment, ready: Mapping[str, int]) -> list[ObservedPool]:
    """The pools that the deployment wants, with how many replicas of each role are ready."""
    return [
        ObservedPool(role=pool.role, desired_replicas=pool.replicas, ready_replicas=ready.get(pool.role, 0))
        for pool in deployment.pools
    ]


def phase_of(pools: Sequence[ObservedPool], model_ready: bool | None, was_ready: bool) -> DeploymentPhase:
    """The phase of a deployment whose processes are being driven.

    Ready needs every replica and the frontend's word that the model is served. One that was ready stays `degraded`,
    not `provisioning`, until it is ready again or removed: it has been given traffic, and its figures say how much of
    it is left. Scaled to zero it is `pending`: it takes no traffic and waits for replicas.
    """
    if not any(pool.desired_replicas for pool in pools):
        return DeploymentPhase.PENDING
    if model_ready and all(pool.ready_replicas >= pool.desired_replicas for pool in pools):
        return DeploymentPhase.READY
    return DeploymentPhase.DEGRADED if was_ready else DeploymentPhase.PROVISIONING
