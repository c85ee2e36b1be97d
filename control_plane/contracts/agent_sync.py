"""`POST /agent/v1/sync`: one idempotent long-poll between a fleet's agent and the control plane.

Whole state goes both ways. `epoch` is the fencing token: the control plane raises it for every new holder of the
fleet's lease, and both sides refuse a lower one. 409 `stale_epoch`: the lease moved on, sync without an epoch to ask
for it. 410 `superseded`: another boot holds it, stop acting.
"""

from enum import StrEnum

from pydantic import Field

from control_plane.contracts.deployment import DesiredDeployment, EngineFacts
from control_plane.contracts.recovery import FIRST_LINEAGE, SignedRecovery
from control_plane.contracts.wire import Count, Name, Note, Wait, Wire

LEASE_TTL_S = 15.0
REFUSED = "refused by the engine: "
"""How the message of a deployment begins whose specification its engine will never run."""


class DeploymentPhase(StrEnum):
    """What an agent sees of a deployment."""

    PENDING = "pending"
    PROVISIONING = "provisioning"
    READY = "ready"
    DEGRADED = "degraded"
    RETIRING = "retiring"
    GONE = "gone"


class ObservedPool(Wire):
    """Replicas of one role: wanted by the generation the agent acts on, and ready."""

    role: Name
    desired_replicas: Count
    ready_replicas: Count


class ObservedDeployment(Wire):
    """`inflight` are requests inside the engine, `queued` those of them that wait for a first token, and `kv_usage` is
    the fullest worker's share of its KV cache in [0, 1]; null when they could not be read (null is not 0). `message`
    says what is wrong, for people."""

    deployment_id: Name
    observed_generation: Count
    phase: DeploymentPhase
    pools: list[ObservedPool] = Field(max_length=16)
    inflight: Count | None = None
    queued: Count | None = None
    kv_usage: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    message: Note = ""
    facts: EngineFacts = EngineFacts()


def requests_inside(inflight: int | None, queued: int | None) -> int | None:
    """How many requests an engine holds, null when that is not known. Dynamo counts those that wait for a first token
    among those in flight; who is counted as waiting a moment earlier is not lost."""
    return None if inflight is None or queued is None else max(inflight, queued)


class CommandState(StrEnum):
    """How far a command got; the last four never change again."""

    ACCEPTED = "accepted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"


class CommandKind(StrEnum):
    """What a fleet may be told beside its desired state. `drain`: done when no request is left inside the engine.
    `probe`: done when its own frontend answered one request of the deployment's model with a token."""

    DRAIN = "drain"
    PROBE = "probe"


class Command(Wire):
    """An order to one fleet; `seq` grows per fleet and `epoch` is the lease it was issued under. `deadline_s` is what
    is left of its time when it is sent. `deployment_id` is empty when it is of the whole fleet."""

    id: str
    seq: int
    epoch: int
    kind: CommandKind
    deadline_s: float
    deployment_id: str = ""


class CommandAck(Wire):
    """What became of a command; repeated until the control plane stops listing it."""

    command_id: Name
    state: CommandState
    result: Note = ""


class AgentSyncRequest(Wire):
    """`epoch` is null until a lease was granted. `seen_generation` is the desired state that the agent has stored,
    `seen_epoch` the highest epoch; both are of `lineage`."""

    boot_id: Name
    release: Name
    epoch: Count | None
    seen_generation: Count
    seen_epoch: Count = 0
    lineage: Count = FIRST_LINEAGE
    deployments: list[ObservedDeployment] = Field(max_length=1_000)
    acks: list[CommandAck] = Field(max_length=1_000)
    wait_s: Wait


class DesiredState(Wire):
    """All that a fleet shall run. The agent is done with it when `observed_generation` reached `generation`."""

    generation: int
    deployments: list[DesiredDeployment]


class AgentSyncAnswer(Wire):
    """`desired` is null when `seen_generation` is current. `lineage` is what all its numbers are of; to an agent of a
    lower one `recovery` proves it."""

    epoch: int
    lease_ttl_s: float
    generation: int
    desired: DesiredState | None
    commands: list[Command]
    next_wait_s: float
    lineage: int = FIRST_LINEAGE
    recovery: SignedRecovery | None = None
