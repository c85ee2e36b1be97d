"""Ready capacity against what must be served, per model and region set, in concurrent requests. Pure.

Capacity is what ready decode and aggregated replicas hold well. What must be served is 1.2 times the larger of the
last 30 minutes' peak and what is reserved. The peak counts everywhere, because edges may send a request to any region
that its key allows; a reservation counts in each set of regions that holds all of its own. What nobody knows is null,
never 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from control_plane.capacity.reservations import Reservation
from control_plane.contracts.deployment import PoolRole

SERVING_ROLES = frozenset({PoolRole.DECODE, PoolRole.AGGREGATED})
EVERYWHERE: frozenset[str] = frozenset()
MARGIN_PERCENT = 120
PEAK_WINDOW_S = 1_800.0


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """A pool as capacity. `ready` is null until observed, `max_inflight` while nobody measured it."""

    role: PoolRole
    ready: int | None
    max_inflight: int | None


@dataclass(frozen=True, slots=True)
class Holding:
    """A deployment as capacity: `requests` that it holds well now, null if unknown. `serves`: its datacenter takes new
    requests, it is ready or degraded, and its agent was heard."""

    deployment_id: str
    model_id: str
    datacenter_id: str
    region_id: str
    requests: int | None
    serves: bool


@dataclass(frozen=True, slots=True)
class Need:
    """One region set of a model; no region: everywhere. `peak` is null where there are no samples, and always for a
    set of some regions."""

    regions: frozenset[str]
    ready: int | None
    peak: int | None
    reserved: int

    @property
    def required(self) -> int:
        """1.2 times the larger of peak and reservations."""
        return required(max(self.peak or 0, self.reserved))

    @property
    def headroom(self) -> int | None:
        """What is left; negative when it is too little, null when the capacity is unknown."""
        return None if self.ready is None else self.ready - self.required

    @property
    def is_short(self) -> bool:
        """Whether capacity is known and too little."""
        return self.ready is not None and self.ready < self.required


@dataclass(frozen=True, slots=True)
class ModelHeadroom:
    """A model's needs, everywhere first."""

    model_id: str
    needs: tuple[Need, ...]

    @property
    def total(self) -> Need:
        """The need everywhere."""
        return self.needs[0]

    @property
    def tightest(self) -> Need:
        """The need with the least headroom; the first one where none is known."""
        known = [need for need in self.needs if need.headroom is not None]
        return min(known, key=lambda need: need.headroom or 0) if known else self.needs[0]


def required(requests: int) -> int:
    """The capacity that must stay for so many requests."""
    return -(-requests * MARGIN_PERCENT // 100)


def requests_held(pools: Iterable[PoolCapacity]) -> int | None:
    """What a deployment's ready replicas hold well; null if any of its serving pools is unknown."""
    total = 0
    for pool in pools:
        if pool.role in SERVING_ROLES:
            if pool.ready is None or pool.max_inflight is None:
                return None
            total += pool.ready * pool.max_inflight
    return total


def headrooms(holdings: Sequence[Holding], peaks: Mapping[str, int],
              reservations: Sequence[Reservation]) -> dict[str, ModelHeadroom]:
    """Each model's headroom. `peaks` are the last 30 minutes' peaks by model; a model without samples has none."""
    models = sorted({one.model_id for one in holdings} | {one.model_id for one in reservations})
    return {model_id: _headroom(
        model_id, [one for one in holdings if one.model_id == model_id], peaks.get(model_id),
        [one for one in reservations if one.model_id == model_id]) for model_id in models}


def without(holdings: Iterable[Holding], datacenter_id: str) -> list[Holding]:
    """The same once a datacenter left: it holds nothing that counts."""
    return [replace(one, serves=one.serves and one.datacenter_id != datacenter_id) for one in holdings]


def region_sets(reservations: Sequence[Reservation]) -> set[frozenset[str]]:
    """Every set that a reservation names, and every union of them: what is enough for each alone may not be for all."""
    found: set[frozenset[str]] = set()
    for named in {one.regions for one in reservations if one.regions}:
        found |= {named} | {named | other for other in found}
    return found


def _headroom(model_id: str, holdings: Sequence[Holding], peak: int | None,
              reservations: Sequence[Reservation]) -> ModelHeadroom:
    total = Need(EVERYWHERE, _ready(holdings), peak, sum(one.requests for one in reservations))
    sets = sorted(region_sets(reservations), key=lambda regions: (len(regions), sorted(regions)))
    return ModelHeadroom(model_id, (total, *(Need(
        regions, _ready([one for one in holdings if one.region_id in regions]), None,
        sum(one.requests for one in reservations if one.regions and one.regions <= regions)) for regions in sets)))


def _ready(holdings: Iterable[Holding]) -> int | None:
    serving = [one.requests for one in holdings if one.serves]
    known = [requests for requests in serving if requests is not None]
    return sum(known) if len(known) == len(serving) else None
