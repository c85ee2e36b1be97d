"""What the planner looks at, as plain data: fleets, pools, and what bounds both."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from control_plane.capacity.headroom import SERVING_ROLES, Holding, PoolCapacity, requests_held
from control_plane.capacity.hysteresis import Limits, PastMove, PoolKey, Signals
from control_plane.capacity.reservations import Reservation
from control_plane.contracts.deployment import PoolRole


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet and where it is. `takes_traffic`: its datacenter is active. `is_heard`: its agent's lease is live; it
    reported `age_s` ago, null if never."""

    id: str
    datacenter_id: str
    region_id: str
    gpu_total: int
    takes_traffic: bool = True
    is_heard: bool = True
    age_s: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool: `replicas` wanted, `ready` of them, null until observed. The planner keeps it between `minimum` and
    `maximum`; null: no maximum. `operation` is the one under way that claims it, `serves`: edges may route to it."""

    deployment_id: str
    model_id: str
    fleet_id: str
    role: PoolRole
    replicas: int
    ready: int | None
    gpus_per_replica: int
    max_inflight: int | None
    minimum: int = 1
    maximum: int | None = None
    operation: str | None = None
    serves: bool = True

    @property
    def key(self) -> PoolKey:
        return self.deployment_id, self.role


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything but demand. `peaks` are the models' peaks of the last 30 minutes; `frozen` says why automation must
    do nothing, empty if it may; `history` and `signals` are the planner's own memory."""

    fleets: Mapping[str, Fleet]
    pools: tuple[Pool, ...]
    peaks: Mapping[str, int] = field(default_factory=dict)
    min_datacenters: Mapping[str, int] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    history: tuple[PastMove, ...] = ()
    signals: Signals = field(default_factory=Signals)
    frozen: str = ""

    def fleet_of(self, pool: Pool) -> Fleet:
        return self.fleets[pool.fleet_id]

    def of_model(self, model_id: str) -> list[Pool]:
        return [pool for pool in self.pools if pool.model_id == model_id]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the planner keeps to. `spare_datacenters`: how many may be lost while the others still hold everything.
    `min_coverage` and `max_age_s` are safety rule 5. `release_s`: how long a replica that was told to go may take;
    `settle_s`: how long one that was added may."""

    limits: Limits = field(default_factory=Limits)
    spare_datacenters: int = 1
    min_coverage: float = 0.8
    max_age_s: float = 60.0
    release_s: float = 900.0
    settle_s: float = 900.0

    @property
    def covered_minutes(self) -> int:
        """The minutes of which enough must be known: those in which a signal must hold."""
        return max(1, math.ceil(self.limits.sustain_s / 60))


def usable_share(observed: Observed, model_id: str, spare_datacenters: int) -> float:
    """The part of a model's capacity that may be planned with, so that it still suffices when `spare_datacenters` more
    are lost. A datacenter that is away already is one that was spared for."""
    places: dict[str, bool] = {}
    for pool in observed.of_model(model_id):
        fleet = observed.fleet_of(pool)
        if pool.role in SERVING_ROLES and pool.replicas:
            places[fleet.datacenter_id] = places.get(fleet.datacenter_id, False) or fleet.takes_traffic
    active = sum(places.values())
    spare = max(0, spare_datacenters - (len(places) - active))
    return (active - spare) / active if active > spare else 1.0


def holdings(observed: Observed, replicas: Mapping[PoolKey, int], model_id: str) -> list[Holding]:
    """A model's deployments as capacity once its pools were changed to `replicas`: what is not ready now is not
    counted on."""
    deployments: dict[str, list[Pool]] = {}
    for pool in observed.of_model(model_id):
        deployments.setdefault(pool.deployment_id, []).append(pool)
    return [_holding(observed.fleet_of(pools[0]), pools, replicas) for _, pools in sorted(deployments.items())]


def _holding(fleet: Fleet, pools: Iterable[Pool], replicas: Mapping[PoolKey, int]) -> Holding:
    pools = list(pools)
    return Holding(
        deployment_id=pools[0].deployment_id, model_id=pools[0].model_id, datacenter_id=fleet.datacenter_id,
        region_id=fleet.region_id, requests=requests_held(PoolCapacity(
            pool.role, None if pool.ready is None else min(pool.ready, replicas[pool.key]), pool.max_inflight)
            for pool in pools),
        serves=fleet.takes_traffic and fleet.is_heard and all(
            pool.serves and pool.ready != 0 and replicas[pool.key] > 0 for pool in pools))
