"""What operators and team admins read and write: the REST shapes behind the `meridian` CLI and the dashboard.

Money is a string of exact decimals. `null` means not observed, never 0. Every list is paged: `{data, next_cursor}`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from pydantic import Field

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.keys import Scope
from control_plane.contracts.operations import AutomationView, OperationView
from control_plane.contracts.override import OverrideView
from control_plane.contracts.pricing import Usd
from control_plane.contracts.problem import PRINTABLE
from control_plane.contracts.recovery import AheadView
from control_plane.contracts.snapshot import TrafficState
from control_plane.contracts.tenancy import Models, Regions
from control_plane.contracts.wire import Document, Wire

Item = TypeVar("Item")

class Page(Wire, Generic[Item]):
    """One page of a list; `next_cursor` is null on the last."""

    data: list[Item]
    next_cursor: str | None = None


class OperatorScope(StrEnum):
    """What an operator token may do."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


class OperatorTokenRequest(Document):
    """A new operator token; it ends after `ttl_s` seconds."""

    name: str = Field(min_length=1, max_length=100, pattern=PRINTABLE)
    scopes: list[OperatorScope] = Field(min_length=1)
    ttl_s: int = Field(default=86_400, ge=60, le=90 * 86_400)


class OperatorTokenCreated(Wire):
    """`token` is shown this once."""

    id: str
    token: str
    expires_at: datetime


class EnrolmentTokenRequest(Document):
    """A one-time token for an agent (`subject` is its fleet) or an edge (`subject` is its region)."""

    kind: str = Field(pattern="^(agent|edge)$")
    subject: str
    ttl_s: int = Field(default=3_600, ge=60, le=7 * 86_400)


class EnrolmentTokenCreated(Wire):
    """`token` is shown this once and works once."""

    token: str
    expires_at: datetime


class TeamRequest(Document):
    """A new team."""

    name: str = Field(min_length=1, max_length=100, pattern=PRINTABLE)
    slug: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")


class TeamView(Wire):
    """A team. `regions` null: any may serve it."""

    id: str
    slug: str
    name: str
    created_at: datetime
    regions: list[str] | None = None


class KeyRequest(Document):
    """A new API key of a team; `allowed_models` and `regions` null: any."""

    name: str = Field(min_length=1, max_length=100, pattern=PRINTABLE)
    scopes: list[Scope] = Field(default_factory=lambda: [Scope.INFERENCE], min_length=1)
    expires_at: datetime | None = None
    allowed_models: Models | None = None
    regions: Regions | None = None


class KeyView(Wire):
    """A key without its secret. After a rotation `revoke_at` is when the old key ends, and `rotated_from` is the old
    key of the new one."""

    id: str
    team_id: str
    name: str
    hint: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    allowed_models: list[str] | None = None
    regions: list[str] | None = None
    rotated_from: str | None = None
    revoke_at: datetime | None = None


class KeyCreated(KeyView):
    """`secret` is shown this once."""

    secret: str


class PoolStatus(Wire):
    """Replicas of one role."""

    role: PoolRole
    desired_replicas: int
    ready_replicas: int | None


class Continuation(StrEnum):
    """Which open streams may go on elsewhere if a deployment is lost: none, those that no grammar rules, or all."""

    NONE = "none"
    PLAIN = "plain"
    ALL = "all"


class DeploymentStatus(Wire):
    """A deployment as last observed."""

    id: str
    model: str
    fleet: str
    phase: DeploymentPhase
    generation: int
    observed_generation: int | None
    pools: list[PoolStatus]
    inflight: int | None
    queued: int | None
    message: str
    continuation: Continuation = Continuation.NONE


class FleetStatus(Wire):
    """A fleet and its agent; `lease_age_s` is null when no agent ever held the lease."""

    id: str
    agent: str | None
    epoch: int | None
    lease_live: bool
    lease_age_s: float | None


class DatacenterStatus(Wire):
    """A datacenter. `weight` is the one that edges use now: 0 unless it is active, whatever the topology declares."""

    id: str
    region: str
    traffic_state: TrafficState
    weight: int
    open_requests: int | None
    fleets: list[FleetStatus]
    deployments: list[DeploymentStatus]


class EdgeStatus(Wire):
    """An edge. `behind` counts the snapshot versions that it has not acknowledged; `url` is where operators reach it
    directly, and `overrides` are the orders that they gave it there."""

    id: str
    region: str
    live: bool
    release: str | None
    acked_version: int | None
    behind: int | None
    nack: str | None
    last_seen_age_s: float | None
    open_requests: dict[str, int]
    url: str | None = None
    overrides: list[OverrideView] = Field(default_factory=list)


class Quality(Wire):
    """How a model was served, as edges saw it: percentiles of the last 5 minutes in seconds, and uptime in percent by
    OpenRouter's inclusion rules. What fewer than 100 requests say is null."""

    ttft_p50_s: float | None = None
    ttft_p90_s: float | None = None
    ttft_p99_s: float | None = None
    itl_p50_s: float | None = None
    itl_p90_s: float | None = None
    uptime_5m: float | None = None
    uptime_30m: float | None = None
    uptime_1d: float | None = None


class ModelStatus(Wire):
    """A model in a region, or everywhere (`region` null). Capacity is in concurrent requests: what `serving` of the
    `holding` datacenters hold, what is reserved, and what is left of it; `open_requests` are inside the engines."""

    model: str
    region: str | None
    serving: int
    holding: int
    ready: int | None
    peak: int | None
    reserved: int
    headroom: int | None
    open_requests: int | None
    quality: Quality


class VoteStatus(Wire):
    """What edges say against a datacenter: how many of the live ones, and the longest that one of them has."""

    datacenter: str
    verdict: str
    edges: int
    of: int
    held_s: float
    evidence: str


class StatusView(Wire):
    """Everything `meridian status` shows. `ahead` are machines that have seen more than the database holds: it is an
    older copy, and `meridian recover` is needed."""

    lineage: int
    snapshot_version: int
    datacenters: list[DatacenterStatus]
    models: list[ModelStatus] = Field(default_factory=list)
    edges: list[EdgeStatus]
    ahead: list[AheadView] = Field(default_factory=list)
    votes: list[VoteStatus] = Field(default_factory=list)
    automation: AutomationView = AutomationView(frozen=False)
    running_operations: list[OperationView]
    as_of: datetime


class UsageGroup(StrEnum):
    """What usage may be grouped by."""

    MODEL = "model"
    TEAM = "team"
    KEY = "key"
    DATACENTER = "datacenter"


class UsageRow(Wire):
    """Sums of one group; what it is not grouped by is null."""

    model: str | None = None
    team: str | None = None
    key: str | None = None
    datacenter: str | None = None
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: Usd


class UsageSummary(Wire):
    """Usage from `start` (inclusive) to `end` (exclusive), the dearest row first. `total` is of everything, also of the
    rows that are left out when there are too many (`truncated`)."""

    start: datetime
    end: datetime
    rows: list[UsageRow]
    total: UsageRow
    truncated: bool = False


class GenerationView(Wire):
    """One request's usage record."""

    request_id: str
    team_id: str
    key_id: str
    model: str
    datacenter: str
    outcome: str
    streamed: bool
    http_status: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: Usd
    price_version: str
    attempts: int
    created_at: datetime
    duration_ms: float
    ttft_ms: float | None
