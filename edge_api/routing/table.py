"""The snapshot in the form that a request needs it: models by id, routes with address and weight."""

from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.pricing import Price
from control_plane.contracts.snapshot import Snapshot, SnapshotModel, SnapshotRoute, TrafficState
from edge_api.admission.estimate import Tariff, tariff
from edge_api.upstream.pool import Address

NO_FACTS = EngineFacts()
ASSUMED_PREFILL_TOKENS_PER_S = 10_000.0
WHOLE = 1_000


@dataclass(frozen=True, slots=True)
class Route:
    """Where one datacenter serves a model. `weight` 0 takes no new requests of it. `engine` is what its engine said of
    the deployment. `share` is its part of the model's weight. `evacuate`: what is open there goes on elsewhere.

    What a choice needs again and again is made once: the frontend's address, what is hashed with a session, and the
    prefill rate of one replica, assumed where nobody measured it.
    """

    datacenter_id: str
    region: str
    state: TrafficState
    weight: float
    host: str
    port: int
    tls: bool
    deployment_id: str = ""
    engine: EngineFacts = NO_FACTS
    share: float = 1.0
    evacuate: bool = False
    address: Address = field(init=False, repr=False)
    salt: bytes = field(init=False, repr=False)
    prefill_tokens_per_s: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        prefill_tokens_per_s = self.engine.prefill_tokens_per_s or ASSUMED_PREFILL_TOKENS_PER_S
        object.__setattr__(self, "address", (self.host, self.port, self.tls))
        object.__setattr__(self, "salt", f"\n{self.deployment_id or self.datacenter_id}".encode())
        object.__setattr__(self, "prefill_tokens_per_s", prefill_tokens_per_s)


@dataclass(frozen=True, slots=True)
class RoutedModel:
    """A model and where it is served. `default_max_tokens` is asked for when a request names no limit; `listing` is
    what the snapshot says of it, for the lists of models."""

    id: str
    price: Price
    context_window: int
    max_output_tokens: int
    routes: tuple[Route, ...]
    unroutable_reason: str | None
    listing: SnapshotModel
    default_max_tokens: int | None = None
    tariff: Tariff = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tariff", tariff(self.price))


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """All that a request looks up; replaced whole when a snapshot is taken."""

    lineage: int
    version: int
    models: dict[str, RoutedModel]
    regions: frozenset[str] = frozenset()


def build_table(snapshot: Snapshot) -> RoutingTable:
    """The table of a snapshot whose meaning was checked. A datacenter's weight is divided evenly among the fleets that
    serve a model there, and each has as much of its part as its deployment's share says."""
    datacenters = {datacenter.id: datacenter for datacenter in snapshot.datacenters}

    def routes(model: SnapshotModel) -> tuple[Route, ...]:
        fleets = Counter(told.datacenter_id for told in model.routes)
        weights = [datacenters[told.datacenter_id].weight * told.share_permille / WHOLE / fleets[told.datacenter_id]
                   for told in model.routes]
        total = sum(weights) or 1.0
        return tuple(route(told, weight, weight / total) for told, weight in zip(model.routes, weights, strict=True))

    def route(told: SnapshotRoute, weight: float, share: float) -> Route:
        datacenter, url = datacenters[told.datacenter_id], urlsplit(told.ingress_url)
        tls = url.scheme == "https"
        return Route(datacenter.id, datacenter.region, datacenter.state, weight, url.hostname or "",
                     url.port or (443 if tls else 80), tls, told.deployment_id, told.engine, share, datacenter.evacuate)

    return RoutingTable(snapshot.lineage, snapshot.version, {
        model.id: RoutedModel(
            id=model.id,
            price=model.price,
            context_window=model.context_window,
            max_output_tokens=model.max_output_tokens,
            routes=routes(model),
            unroutable_reason=model.unroutable_reason,
            listing=model,
            default_max_tokens=model.default_max_tokens,
        )
        for model in snapshot.models
    }, frozenset(datacenter.region for datacenter in snapshot.datacenters))
