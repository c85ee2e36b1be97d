"""A deployment as control plane and agent pass it on. What `engine` means is `engine/spec.py`'s to say."""

from enum import StrEnum

from pydantic import Field, JsonValue

from control_plane.contracts.wire import Document, Wire


class PoolRole(StrEnum):
    """What the replicas of a pool do."""

    PREFILL = "prefill"
    DECODE = "decode"
    AGGREGATED = "aggregated"


class Pool(Document):
    """Replicas of one role; the control plane counts them, the engine starts them."""

    role: PoolRole
    replicas: int = Field(ge=0, le=10_000)
    gpus_per_replica: int = Field(default=1, ge=0, le=1_024)


class DesiredDeployment(Wire):
    """A model on a fleet. `engine` is opaque here and validated by the agent's engine."""

    deployment_id: str
    generation: int
    model_id: str
    context_window: int
    pools: list[Pool]
    engine: dict[str, JsonValue]
