"""The snapshot in the form that a request needs it: models by id, routes with address and weight."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from control_plane.contracts.pricing import Price
from control_plane.contracts.snapshot import Snapshot, SnapshotModel, TrafficState


@dataclass(frozen=True, slots=True)
class Route:
    """Where one datacenter serves a model. `weight` 0 takes no new requests."""

    datacenter_id: str
    region: str
    state: TrafficState
    weight: int
    host: str
    port: int
    tls: bool


@dataclass(frozen=True, slots=True)
class RoutedModel:
    """A model and where it is served. `default_max_tokens` is asked for when a request names no limit."""

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

    def route(datacenter_id: str, ingress_url: str) -> Route:
        datacenter, url = datacenters[datacenter_id], urlsplit(ingress_url)
        tls = url.scheme == "https"
        return Route(datacenter_id, datacenter.region, datacenter.state, datacenter.weight,
                     url.hostname or "", url.port or (443 if tls else 80), tls)

    return RoutingTable(snapshot.lineage, snapshot.version, {
        model.id: RoutedModel(
            id=model.id,
            price=model.price,
            context_window=model.context_window,
            max_output_tokens=model.max_output_tokens,
            routes=tuple(route(r.datacenter_id, r.ingress_url) for r in model.routes),
            unroutable_reason=model.unroutable_reason,
            listing=model,
            default_max_tokens=model.default_max_tokens,
        )
        for model in snapshot.models
    })
