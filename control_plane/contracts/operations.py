"""Operations: what operators and automation order of the fleet, and what they are told of it.

`/operator/v1/operations` creates, lists, pauses, resumes, rolls back and cancels them. `null` means not observed,
never 0.
"""

from datetime import datetime
from enum import StrEnum
from typing import Self

from pydantic import Field, JsonValue, model_validator

from control_plane.contracts.deployment import Pool
from control_plane.contracts.problem import PRINTABLE, Problem
from control_plane.contracts.snapshot import TrafficState
from control_plane.contracts.wire import Document, Wire

Reason = Field(min_length=1, max_length=500, pattern=PRINTABLE)


class OperationKind(StrEnum):
    """What may be ordered. The first three are of a datacenter, `shift` is of a model's traffic, and `rollout` of the
    specification of its deployments."""

    DRAIN = "drain"
    RESTORE = "restore"
    FAILOVER = "failover"
    SHIFT = "shift"
    ROLLOUT = "rollout"


OF_A_DATACENTER = frozenset({OperationKind.DRAIN, OperationKind.RESTORE, OperationKind.FAILOVER})


class OperationState(StrEnum):
    """How far an operation is; the last five never change again."""

    PLANNED = "planned"
    RUNNING = "running"
    PAUSED = "paused"
    ROLLING_BACK = "rolling_back"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"


FINAL = frozenset({OperationState.SUCCEEDED, OperationState.FAILED, OperationState.REFUSED, OperationState.CANCELLED,
                   OperationState.ROLLED_BACK})


class StepState(StrEnum):
    """How far a step is. `skipped`: the operation was rolled back before it."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class FailoverMode(StrEnum):
    """What becomes of requests that are open in a datacenter that is failed over: `graceful` lets them finish until the
    deadline and moves the rest, `hard` moves them at once."""

    GRACEFUL = "graceful"
    HARD = "hard"


class ShiftOrder(Document):
    """Moves `percent` of what `source` gets of a model to `target`, `step_percent` of it at a time, each held for
    `interval_s` (null: the pace of this control plane). It is rolled back when `abort_if` comes true, such as
    `ttft_p90>2s` or `error_rate>1%`."""

    model: str
    source: str
    target: str
    percent: int = Field(ge=1, le=100)
    step_percent: int = Field(default=5, ge=1, le=100)
    interval_s: float | None = Field(default=None, ge=0, le=86_400)
    abort_if: str | None = Field(default=None, max_length=200)

    @model_validator(mode="after")
    def _somewhere_else(self) -> Self:
        if self.source == self.target:
            raise ValueError("a shift needs two datacenters")
        return self


class RolloutOrder(Document):
    """Gives a model's deployments another specification, one after the other: `engine` and `pools` replace what each
    has (null: that stays). `datacenters` null: everywhere. Open requests may take `finish_s` before a deployment is
    replaced, and it may take `ready_s` to be ready. Each is watched for `watch_s` under traffic (null: the pace of this
    control plane); more than `max_error_percent` of failed requests there rolls everything back."""

    model: str
    engine: dict[str, JsonValue] | None = None
    pools: list[Pool] | None = Field(default=None, min_length=1)
    datacenters: list[str] | None = Field(default=None, min_length=1)
    finish_s: float = Field(default=600.0, ge=0, le=86_400)
    ready_s: float = Field(default=900.0, gt=0, le=86_400)
    watch_s: float | None = Field(default=None, ge=0, le=86_400)
    max_error_percent: float = Field(default=1.0, ge=0, le=100)

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.engine is None and self.pools is None:
            raise ValueError("a rollout changes engine, pools or both")
        return self


class OperationRequest(Document):
    """`deadline_s` is how long open requests may finish. `dry_run` answers the plan and changes nothing. `onto` are the
    datacenters that shall take a failed one's traffic, and the only ones whose capacity counts; null: all. `mode` null:
    graceful. `force` overrules every safety rule, `override_reservations` only what is reserved.

    The header `Idempotency-Key` makes a repeat answer the first operation again.
    """

    kind: OperationKind
    datacenter: str | None = None
    onto: list[str] | None = Field(default=None, min_length=1)
    mode: FailoverMode | None = None
    shift: ShiftOrder | None = None
    rollout: RolloutOrder | None = None
    reason: str = Reason
    deadline_s: float = Field(default=600.0, gt=0, le=86_400)
    force: bool = False
    override_reservations: bool = False
    dry_run: bool = False

    @model_validator(mode="after")
    def _belongs_to_kind(self) -> Self:
        given = {"datacenter": self.datacenter, "shift": self.shift, "rollout": self.rollout}
        wanted = "datacenter" if self.kind in OF_A_DATACENTER else self.kind.value
        if [name for name, value in given.items() if value is not None] != [wanted]:
            raise ValueError(f"{self.kind.value} needs `{wanted}`, and none of the others")
        if self.kind is not OperationKind.FAILOVER and (self.onto is not None or self.mode is not None):
            raise ValueError("only a failover has `onto` and `mode`")
        if self.onto is not None and self.datacenter in self.onto:
            raise ValueError("a datacenter cannot be failed over onto itself")
        return self


class Headroom(Wire):
    """What a model has and needs, in concurrent requests; null where nobody declared or reported it. `peak` is the
    highest of the last 30 minutes; `headroom` is `ready` minus 1.2 times the greater of `peak` and `reserved`."""

    ready: int | None
    peak: int | None
    reserved: int
    headroom: int | None


class TrafficChange(Wire):
    """What part of a model's new requests a datacenter gets before an operation and after it."""

    before_percent: float
    after_percent: float


class OperationPlan(Wire):
    """What an operation will do, before it does it. `subject` says in words what it is of. `remaining_datacenters` are
    those that serve each model once it is over, a restored one included, and `after` is what they have then. Counts are
    null when nobody reported them; `open_requests` and `open_streams` are what the edges reported last, and that may be
    4 s ago. `sessions` had a turn there within 15 minutes, `reserved_at_risk` are reserved units that the rest cannot
    hold. `traffic` is what a shift changes. `expected_s` is how long each step takes if nothing holds it up; a step
    without a number waits for others. `warnings` are what an operator should know and no rule forbids."""

    kind: OperationKind
    subject: str
    datacenter: str | None
    traffic_state: TrafficState | None
    steps: list[str]
    expected_s: dict[str, float] = Field(default_factory=dict)
    models: list[str]
    open_requests: int | None
    open_streams: int | None = None
    sessions: int | None = None
    remaining_datacenters: dict[str, list[str]]
    after: dict[str, Headroom] = Field(default_factory=dict)
    reserved_at_risk: dict[str, int] = Field(default_factory=dict)
    traffic: dict[str, TrafficChange] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)
    refusal: Problem | None = None


class StepView(Wire):
    """A step; `detail` says in words what it waits for or what it found."""

    seq: int
    name: str
    state: StepState
    detail: str
    started_at: datetime | None
    finished_at: datetime | None


class OperationView(Wire):
    """An operation. `automatic`: no operator ordered it. `paused` says why it is, null if it is not."""

    id: str
    kind: OperationKind
    subject: str
    datacenter: str | None
    state: OperationState
    reason: str
    requested_by: str
    automatic: bool
    forced: bool
    created_at: datetime
    finished_at: datetime | None
    deadline_at: datetime
    error: str | None
    paused: str | None
    steps: list[StepView]


class OperationAnswer(Wire):
    """The plan, and the operation unless it was a dry run or refused."""

    plan: OperationPlan
    operation: OperationView | None


class FreezeRequest(Document):
    """Stops automation for `ttl_s` seconds (null: until it is ended); operators go on."""

    reason: str = Reason
    ttl_s: float | None = Field(default=None, gt=0, le=30 * 86_400)


class UnfreezeRequest(Document):
    """Lets automation go on."""

    reason: str = Reason


class AutomationView(Wire):
    """Whether automation may act. `until` null while frozen: until somebody ends it."""

    frozen: bool
    until: datetime | None = None
    reason: str | None = None
    by: str | None = None
