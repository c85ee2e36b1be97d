"""The snapshot in the form that a request needs it: models by id, routes with address and weight."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.pricing import Price
from control_plane.contracts.snapshot import Snapshot, SnapshotModel, SnapshotRoute, TrafficState

NO_FACTS = EngineFacts()


@dataclass(frozen=True, slots=True)
class Route:
    """Where one datacenter serves a model. `weight` 0 takes no new requests. `engine` is what its engine said of the
    deployment."""

    datacenter_id: str
    region: str
    state: TrafficState
    weight: int
    host: str
    port: int
    tls: bool
    deployment_id: str = ""
    engine: EngineFacts = NO_FACTS


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


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """All that a request looks up; replaced whole when a snapshot is taken."""

    lineage: int
    version: int
    models: dict[str, RoutedModel]


def build_table(snapshot: Snapshot) -> RoutingTable:
    """The table of a snapshot whose meaning was checked."""
    datacenters = {datacenter.id: datacenter for datacenter in snapshot.datacenters}

    def route(told: SnapshotRoute) -> Route:
        datacenter, url = datacenters[told.datacenter_id], urlsplit(told.ingress_url)
        tls = url.scheme == "https"
        return Route(datacenter.id, datacenter.region, datacenter.state, datacenter.weight, url.hostname or "",
                     url.port or (443 if tls else 80), tls, told.deployment_id, told.engine)

    return RoutingTable(snapshot.lineage, snapshot.version, {
        model.id: RoutedModel(
            id=model.id,
            price=model.price,
            context_window=model.context_window,
            max_output_tokens=model.max_output_tokens,
            routes=tuple(map(route, model.routes)),
            unroutable_reason=model.unroutable_reason,
            listing=model,
            default_max_tokens=model.default_max_tokens,
        )
        for model in snapshot.models
    })
