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
    """Replicas of one role; the control plane counts them, the engine starts them. `max_inflight` is how many requests
    one replica holds well: what capacity is counted in. Null: nobody measured it."""

    role: PoolRole
    replicas: int = Field(ge=0, le=10_000)
    gpus_per_replica: int = Field(default=1, ge=0, le=1_024)
    max_inflight: int | None = Field(default=None, ge=1, le=1_000_000)


class ReasoningFacts(Wire):
    """How an engine marks reasoning in token ids: `start_ids` and `end_ids` are the sequences that open and close it.
    `starts_inside`: the chat template opens it already, so an answer begins in it."""

    start_ids: list[int] = Field(max_length=64)
    end_ids: list[int] = Field(max_length=64)
    starts_inside: bool


class EngineFacts(Wire):
    """What an engine says of one deployment, for edges. Streams may go on between deployments of equal `identity`: a
    digest of weights, tokenizer, chat template and parsers. Empty: never. `grammar_url` is the grammar service beside
    it, without a path; without one constrained streams are not continued. `tool_parser` and `reasoning_parser` are the
    frontend's, empty without. `is_salt_aware`: it keeps cached prefixes of different salts apart.
    `prefill_tokens_per_s` is of one replica, null if nobody measured it."""

    identity: str = Field(default="", max_length=200)
    grammar_url: str | None = Field(default=None, max_length=2_000)
    tool_parser: str = Field(default="", max_length=64)
    reasoning_parser: str = Field(default="", max_length=64)
    reasoning: ReasoningFacts | None = None
    is_salt_aware: bool = False
    prefill_tokens_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class DesiredDeployment(Wire):
    """A model on a fleet. `engine` is opaque here and validated by the agent's engine."""

    deployment_id: str
    generation: int
    model_id: str
    context_window: int
    pools: list[Pool]
    engine: dict[str, JsonValue]
