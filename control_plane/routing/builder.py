"""Facts in, snapshot out: pure, sorted, the same bytes for the same facts."""

import hashlib
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.pricing import Price
from control_plane.contracts.snapshot import (
    ModelDetails,
    OperatorKey,
    Snapshot,
    SnapshotDatacenter,
    SnapshotModel,
    SnapshotRoute,
    TrafficState,
)
from control_plane.topology.states import ROUTABLE, effective_weight


@dataclass(frozen=True, slots=True)
class DatacenterFacts:
    """A datacenter; `weight` is its share while active, `ramp_percent` what it gets of that on its way out or back."""

    id: str
    region: str
    state: TrafficState
    weight: int
    ramp_percent: int = 0
    evacuate: bool = False


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """A deployment and where it is. `phase` is null while no agent ever reported it; `replicas` are those wanted."""

    id: str
    model_id: str
    fleet_id: str
    datacenter_id: str
    ingress_url: str
    phase: DeploymentPhase | None
    replicas: int
    engine: EngineFacts = field(default_factory=EngineFacts)
    share_permille: int = 1_000

    @property
    def routable(self) -> bool:
        return self.phase in ROUTABLE and self.replicas > 0


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model that edges offer, at its current price."""

    id: str
    display_name: str
    created_s: int
    owned_by: str
    context_window: int
    max_output_tokens: int
    price: Price
    default_max_tokens: int | None = None
    details: ModelDetails = field(default_factory=ModelDetails)


@dataclass(frozen=True, slots=True)
class RoutingFacts:
    """Everything that a snapshot is built from, read in one transaction."""

    datacenters: tuple[DatacenterFacts, ...]
    models: tuple[ModelFacts, ...]
    deployments: tuple[DeploymentFacts, ...]
    operator_keys: tuple[OperatorKey, ...] = ()


def build(facts: RoutingFacts, lineage: int, version: int, built_at_s: float) -> Snapshot:
    """The snapshot of `facts`. A deployment is routed while it is ready or degraded; its datacenter's weight says
    whether it gets new requests."""
    datacenters = {datacenter.id: datacenter for datacenter in facts.datacenters}
    return Snapshot(
        lineage=lineage, version=version, built_at_s=built_at_s,
        datacenters=[SnapshotDatacenter(id=place.id, region=place.region, state=place.state, weight=_weight(place),
                                        evacuate=place.evacuate)
                     for place in sorted(facts.datacenters, key=lambda place: place.id)],
        models=[_model(model, facts.deployments, datacenters)
                for model in sorted(facts.models, key=lambda model: model.id)],
        operator_keys=sorted(facts.operator_keys, key=lambda key: key.key_id))


def content_digest(snapshot: Snapshot) -> str:
    """SHA-256 of all that edges route by: equal when only version and time differ."""
    content = snapshot.model_copy(update={"lineage": 0, "version": 0, "built_at_s": 0.0})
    return hashlib.sha256(content.model_dump_json().encode()).hexdigest()


def _weight(datacenter: DatacenterFacts) -> int:
    return effective_weight(datacenter.state, datacenter.weight, datacenter.ramp_percent)


def _model(model: ModelFacts, deployments: tuple[DeploymentFacts, ...],
           datacenters: dict[str, DatacenterFacts]) -> SnapshotModel:
    mine = sorted((place for place in deployments if place.model_id == model.id), key=lambda place: place.id)
    routes = [place for place in mine if place.routable]
    served = any(_weight(datacenters[route.datacenter_id]) > 0 and route.share_permille for route in routes)
    return SnapshotModel(
        id=model.id, display_name=model.display_name, created_s=model.created_s, owned_by=model.owned_by,
        context_window=model.context_window, max_output_tokens=model.max_output_tokens, price=model.price,
        routes=[SnapshotRoute(deployment_id=route.id, fleet_id=route.fleet_id, datacenter_id=route.datacenter_id,
                              ingress_url=route.ingress_url, engine=_engine(route),
                              share_permille=route.share_permille) for route in routes],
        unroutable_reason=None if served else _reason(mine, datacenters),
        default_max_tokens=model.default_max_tokens, details=model.details)


def _engine(deployment: DeploymentFacts) -> EngineFacts:
    """What edges are told of an engine. Edges send text where its grammar service is said to be, so that has to be the
    host that an operator declared."""
    facts = deployment.engine
    if facts.grammar_url and _host(facts.grammar_url) == _host(deployment.ingress_url):
        return facts
    return facts.model_copy(update={"grammar_url": None})


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _reason(deployments: list[DeploymentFacts], datacenters: dict[str, DatacenterFacts]) -> str:
    """Why no datacenter takes requests for a model, in words."""
    if not deployments:
        return "no deployment holds it"
    return "; ".join(f"{place.id}: {_fault(place, datacenters[place.datacenter_id])}" for place in deployments)


def _fault(deployment: DeploymentFacts, datacenter: DatacenterFacts) -> str:
    if not deployment.replicas:
        return "scaled to zero"
    if deployment.phase is None:
        return "never observed"
    if deployment.phase not in ROUTABLE:
        return deployment.phase.value
    if not deployment.share_permille:
        return "its traffic is shifted away"
    return f"{datacenter.id} is {datacenter.state.value}"
