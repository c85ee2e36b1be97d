"""The topology document: what an operator declares (`meridian topology apply -f FILE`), applied as a whole.

Rows that the document names are created or changed; rows that it leaves out stay as they are. Traffic state is not in
it: only operations move traffic.
"""

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from control_plane.contracts.deployment import Pool
from control_plane.contracts.pricing import Usd
from control_plane.contracts.snapshot import ModelFeature
from control_plane.contracts.wire import Document

Slug = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")
ModelId = Field(pattern=r"^[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)?$", max_length=128)


class RegionDocument(Document):
    """A geography, for residency and for quorum."""

    id: str = Slug


class DatacenterDocument(Document):
    """A failure domain: what an operator drains. `weight` is its share of new sessions while active."""

    id: str = Slug
    region: str = Slug
    weight: int = Field(default=100, ge=1, le=10_000)


class FleetDocument(Document):
    """One Dynamo cluster. `ingress_url` is where edges reach its frontend, without `/v1`."""

    id: str = Slug
    datacenter: str = Slug
    ingress_url: str = Field(pattern=r"^https?://[^/]+$")
    gpu_type: str
    gpu_total: int = Field(ge=0)


class PriceDocument(Document):
    """USD per token. Prices are immutable: other numbers need another version."""

    version: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    input_usd: Usd = Field(ge=0, max_digits=38, decimal_places=12)
    cached_input_usd: Usd = Field(ge=0, max_digits=38, decimal_places=12)
    output_usd: Usd = Field(ge=0, max_digits=38, decimal_places=12)


class DetailsDocument(Document):
    """What listings tell of a model, as far as it is known. Nobody checks it against the engine: it is an operator's
    word."""

    hugging_face_id: str | None = Field(default=None, max_length=200)
    tokenizer: str | None = Field(default=None, max_length=200)
    quantization: Literal["int4", "int8", "fp4", "mxfp4", "nvfp4", "fp6", "fp8", "mxfp8", "fp16", "bf16",
                          "fp32"] | None = None
    features: list[ModelFeature] = Field(default_factory=list)


class ModelDocument(Document):
    """A model that the edge offers. `default_max_tokens` is asked of engines for a request that names no limit of its
    own; without it such a request goes out as it is. No operation leaves it fewer than `min_datacenters` healthy
    datacenters."""

    id: str = ModelId
    display_name: str
    owned_by: str
    context_window: int = Field(ge=1)
    max_output_tokens: int = Field(ge=1)
    default_max_tokens: int | None = Field(default=None, ge=1)
    min_datacenters: int = Field(default=1, ge=1, le=100)
    price: PriceDocument
    details: DetailsDocument = DetailsDocument()

    @model_validator(mode="after")
    def _default_within_limit(self) -> Self:
        if self.default_max_tokens is not None and self.default_max_tokens > self.max_output_tokens:
            raise ValueError(f"default_max_tokens {self.default_max_tokens} is over max_output_tokens "
                             f"{self.max_output_tokens}")
        return self


class DeploymentDocument(Document):
    """A model on a fleet."""

    id: str = Slug
    model: str = ModelId
    fleet: str = Slug
    pools: list[Pool] = Field(min_length=1)
    engine: dict[str, JsonValue]


class TopologyDocument(Document):
    """Everything an operator declares."""

    regions: list[RegionDocument] = Field(default_factory=list)
    datacenters: list[DatacenterDocument] = Field(default_factory=list)
    fleets: list[FleetDocument] = Field(default_factory=list)
    models: list[ModelDocument] = Field(default_factory=list)
    deployments: list[DeploymentDocument] = Field(default_factory=list)
