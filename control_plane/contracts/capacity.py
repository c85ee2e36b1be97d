"""`/operator/v1/capacity`: what models can serve and are asked for, and what the planner does about it and why.

All capacity is in concurrent requests. `null` means not observed or not declared, never 0.
"""

from datetime import datetime
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.operations import Reason
from control_plane.contracts.wire import Document, Wire


class PlannerMode(StrEnum):
    """`off`: no plans are made. `advise`: they are made and written down. `auto`: they are carried out, too."""

    OFF = "off"
    ADVISE = "advise"
    AUTO = "auto"


class RegionNeed(Wire):
    """What a model has and needs in a set of regions, for reservations that name them."""

    regions: list[str]
    ready: int | None
    reserved: int
    required: int
    headroom: int | None


class PoolCapacity(Wire):
    """A pool. `utilisation` is what is asked of it of all that its ready replicas hold well."""

    role: PoolRole
    replicas: int
    ready: int | None
    max_inflight: int | None
    gpus_per_replica: int
    minimum: int
    maximum: int | None
    load: float | None
    utilisation: float | None


class PlaceCapacity(Wire):
    """A model in one datacenter. `serves`: edges send it new requests, and its agent was heard. `ready` is what its
    ready replicas hold well, `load` what is asked of it, `kv_usage` how full its fullest cache is."""

    datacenter: str
    region: str
    fleet: str
    deployment: str
    serves: bool
    ready: int | None
    load: float | None
    utilisation: float | None
    kv_usage: float | None
    pools: list[PoolCapacity]


class ModelCapacity(Wire):
    """A model. `peak` is the highest of the last 30 minutes; `required` is 1.2 times the larger of it and `reserved`;
    `headroom` is what is left of `ready` beyond that. `expected` is the forecast for the next half hour."""

    model: str
    ready: int | None
    load: float | None
    peak: int | None
    expected: float | None
    reserved: int
    required: int
    headroom: int | None
    utilisation: float | None
    regions: list[RegionNeed]
    places: list[PlaceCapacity]


class FleetCapacity(Wire):
    """A fleet's GPUs: `used` by replicas that are wanted or still there."""

    fleet: str
    datacenter: str
    gpu_type: str
    total: int
    used: int


class PlannerView(Wire):
    """What the planner may do. `frozen` says why automation stands still, null if it does not; `planned_at` is when it
    looked last. `changed_by` is null while the mode is the configured one."""

    mode: PlannerMode
    reason: str | None
    changed_by: str | None
    changed_at: datetime | None
    planned_at: datetime | None
    frozen: str | None


class CapacityView(Wire):
    """What `meridian capacity` shows."""

    as_of: datetime
    planner: PlannerView
    models: list[ModelCapacity]
    fleets: list[FleetCapacity]


class Figures(Wire):
    """The numbers of a verdict. `load`: asked now or expected soon, whichever is more; `quiet_load`: the most that was
    asked lately or may be asked within the hour; `per_replica`: requests that a replica is planned to hold, spared
    datacenters left out; `coverage`: the share of the last ten minutes of which there are samples."""

    load: float | None
    quiet_load: float | None
    expected: float | None
    per_replica: float | None
    utilisation: float | None
    quiet_utilisation: float | None
    kv_usage: float | None
    coverage: float


class Verdict(Wire):
    """What the planner says of one pool: `before` and `after` differ when it is moved. `rule` is what held it back,
    null for a move; `wanted` is what it would be without. `why` says it in words, `leaves` what is left then."""

    model: str
    datacenter: str
    fleet: str
    deployment: str
    role: PoolRole
    before: int
    after: int
    wanted: int
    gpus: int
    rule: str | None
    why: str
    leaves: str
    figures: Figures


class PlanView(Wire):
    """A plan. `id` is null for one that was only asked about; `applied`: its moves were carried out."""

    id: str | None
    at: datetime
    mode: PlannerMode
    applied: bool
    verdicts: list[Verdict]


class ModeRequest(Document):
    """Changes what the planner may do."""

    mode: PlannerMode
    reason: str = Reason


class BoundRequest(Document):
    """Holds a pool between `minimum` and `maximum` replicas (null: no maximum). With a minimum of 0 for all of its
    pools, a deployment of which nothing is asked may be scaled to zero."""

    deployment: str = Field(min_length=1, max_length=63)
    role: PoolRole
    minimum: int = Field(default=1, ge=0, le=10_000)
    maximum: int | None = Field(default=None, ge=0, le=10_000)
    reason: str = Reason

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.maximum is not None and self.maximum < self.minimum:
            raise ValueError(f"the maximum {self.maximum} is below the minimum {self.minimum}")
        return self


class BoundView(Wire):
    """What a pool is held between."""

    deployment: str
    role: PoolRole
    minimum: int
    maximum: int | None
