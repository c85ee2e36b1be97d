"""The routing snapshot: everything an edge needs to serve while all above it is down, except keys.

Signed by the control plane, versioned by (lineage, version), without expiry. An edge takes a newer one only if its
signature, its shape and its meaning are right; otherwise it keeps the old one and says why (NACK).
"""

import base64
from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.pricing import Price
from control_plane.contracts.signing import SigningKey, VerifyKey
from control_plane.contracts.wire import Wire


class TrafficState(StrEnum):
    """What operators intend for a datacenter's traffic; health is not stored here."""

    ACTIVE = "active"
    DRAINING = "draining"
    DRAINED = "drained"
    FAILED = "failed"
    RECOVERING = "recovering"
    WARMING = "warming"


CLOSED = frozenset({TrafficState.DRAINED, TrafficState.FAILED, TrafficState.RECOVERING})
"""The states in which a datacenter takes no new requests at all."""

MAX_WEIGHT = 10_000


class SnapshotDatacenter(Wire):
    """`weight` is 0 (no new requests) to 10,000. `evacuate`: streams that are open there go on elsewhere, as if it were
    lost."""

    id: str
    region: str
    state: TrafficState
    weight: int
    evacuate: bool = False


class SnapshotRoute(Wire):
    """One place where a model is served. `ingress_url` is the fleet's frontend, without `/v1`. `share_permille` is its
    part of the datacenter's weight for this model: 0 gets no new requests of it, 1,000 all of its weight, 2,000 twice.
    """

    deployment_id: str
    fleet_id: str
    datacenter_id: str
    ingress_url: str
    engine: EngineFacts = EngineFacts()
    share_permille: int = Field(default=1_000, ge=0, le=10_000)


class ModelFeature(StrEnum):
    """What a model can be asked for beside text."""

    TOOLS = "tools"
    STRUCTURED_OUTPUTS = "structured_outputs"
    REASONING = "reasoning"
    LOGPROBS = "logprobs"
    EMBEDDINGS = "embeddings"


class ModelDetails(Wire):
    """What listings tell of a model; null and empty where nobody said."""

    hugging_face_id: str | None = None
    tokenizer: str | None = None
    quantization: str | None = None
    features: list[ModelFeature] = Field(default_factory=list)


class SnapshotModel(Wire):
    """A model that the edge offers. With no routes, `unroutable_reason` must say why. `default_max_tokens` is what the
    edge asks for when a request names no limit; null: it asks for none."""

    id: str
    display_name: str
    created_s: int
    owned_by: str
    context_window: int
    max_output_tokens: int
    price: Price
    routes: list[SnapshotRoute]
    unroutable_reason: str | None = None
    default_max_tokens: int | None = None
    details: ModelDetails = ModelDetails()


class OperatorKey(Wire):
    """A key whose owner may override edges directly (`contracts.override`)."""

    key_id: str
    public_key: str
    name: str


class Snapshot(Wire):
    """What edges route by, and whom they take orders from while the control plane is away."""

    lineage: int
    version: int
    built_at_s: float
    datacenters: list[SnapshotDatacenter]
    models: list[SnapshotModel]
    operator_keys: list[OperatorKey] = Field(default_factory=list)


class SnapshotRefused(Exception):
    """The snapshot must not be used; the message says why."""


class SignedSnapshot(Wire):
    """A snapshot on the wire and on disk: the exact bytes that were signed, as text."""

    key_id: str
    signature: str
    body: str

    @classmethod
    def seal(cls, snapshot: Snapshot, key: SigningKey) -> "SignedSnapshot":
        body = snapshot.model_dump_json()
        signature = base64.urlsafe_b64encode(key.sign(body.encode())).decode()
        return cls(key_id=key.public.key_id, signature=signature, body=body)

    def open(self, keys: list[VerifyKey]) -> Snapshot:
        """The snapshot, once its signature and its meaning are right.

        Raises:
            SnapshotRefused: unknown key, wrong signature, wrong shape or wrong meaning.
        """
        key = next((key for key in keys if key.key_id == self.key_id), None)
        if key is None:
            raise SnapshotRefused(f"signed by an unknown key {self.key_id}")
        try:
            signature = base64.urlsafe_b64decode(self.signature)
        except ValueError as error:
            raise SnapshotRefused("the signature is no base64") from error
        if not key.verify(self.body.encode(), signature):
            raise SnapshotRefused("the signature does not fit")
        try:
            snapshot = Snapshot.model_validate_json(self.body)
        except ValidationError as error:
            first = error.errors()[0]["loc"]
            raise SnapshotRefused(f"malformed: {error.error_count()} faults, the first at {first}") from error
        check_meaning(snapshot)
        return snapshot


def check_meaning(snapshot: Snapshot) -> None:
    """Refuses a snapshot that is well-formed and still wrong: whoever would route by it would lose requests or money.

    Raises:
        SnapshotRefused: it names a thing twice, contradicts itself, routes where nothing can be, or loses a model
            without a reason.
    """
    if snapshot.lineage < 1 or snapshot.version < 1:
        raise SnapshotRefused(f"{snapshot.lineage}.{snapshot.version} is no version")
    _once("datacenter", [place.id for place in snapshot.datacenters])
    _once("model", [model.id for model in snapshot.models])
    _once("deployment", [route.deployment_id for model in snapshot.models for route in model.routes])
    datacenters = {place.id: place for place in snapshot.datacenters}
    for place in snapshot.datacenters:
        _check_datacenter(place)
    for model in snapshot.models:
        _check_model(model, datacenters)


def _once(noun: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise SnapshotRefused(f"{noun} {next(name for name in names if names.count(name) > 1)!r} is there twice")
    if not all(names):
        raise SnapshotRefused(f"a {noun} has no name")


def _check_datacenter(place: SnapshotDatacenter) -> None:
    if not 0 <= place.weight <= MAX_WEIGHT:
        raise SnapshotRefused(f"datacenter {place.id} has weight {place.weight}")
    if place.state is TrafficState.ACTIVE and not place.weight:
        raise SnapshotRefused(f"datacenter {place.id} is active without a weight")
    if place.state in CLOSED and place.weight:
        raise SnapshotRefused(f"datacenter {place.id} is {place.state.value} and has weight {place.weight}")
    if place.evacuate and place.state is TrafficState.ACTIVE:
        raise SnapshotRefused(f"datacenter {place.id} is active and to be evacuated")


def _check_model(model: SnapshotModel, datacenters: dict[str, SnapshotDatacenter]) -> None:
    if model.max_output_tokens < 1 or model.context_window < 1:
        raise SnapshotRefused(f"model {model.id} has a window of {model.context_window} tokens and gives "
                              f"{model.max_output_tokens}")
    if model.default_max_tokens is not None and not 1 <= model.default_max_tokens <= model.max_output_tokens:
        raise SnapshotRefused(f"model {model.id} has a default limit of {model.default_max_tokens} tokens")
    if not all(amount.is_finite() for amount in (
            model.price.input_usd, model.price.cached_input_usd, model.price.output_usd)):
        raise SnapshotRefused(f"model {model.id} has a price that is no number")
    for route in model.routes:
        if route.datacenter_id not in datacenters:
            raise SnapshotRefused(f"model {model.id} is routed to an unknown datacenter {route.datacenter_id}")
        if not _is_address(route.ingress_url):
            raise SnapshotRefused(f"deployment {route.deployment_id} has no address that can be called")
    routable = any(datacenters[route.datacenter_id].weight > 0 and route.share_permille > 0 for route in model.routes)
    if not routable and not model.unroutable_reason:
        raise SnapshotRefused(f"model {model.id} has no routable datacenter and no reason for it")


def _is_address(url: str) -> bool:
    """Whether an edge can call it: scheme, host, and a port in range; without path, query or credentials."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    is_bare = url == f"{parts.scheme}://{parts.netloc}" and url.isprintable() and not set(url) & set(" @")
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and is_bare


def is_newer(candidate: Snapshot, current: Snapshot | None) -> bool:
    """Whether `candidate` replaces `current`: a higher lineage always does, then a higher version."""
    return current is None or (candidate.lineage, candidate.version) > (current.lineage, current.version)
