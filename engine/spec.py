"""The deployment specification: what a model on a fleet shall run as, typed and checked as a whole.

The control plane stores the `engine` part as it came; only this module says what it means.
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from control_plane.contracts.deployment import DesiredDeployment, Pool, PoolRole
from control_plane.contracts.wire import Document


class SpecRefused(Exception):
    """The specification cannot be run; the message names the field."""

    def __init__(self, deployment_id: str, error: str) -> None:
        super().__init__(error)
        self.deployment_id = deployment_id


class RouterMode(StrEnum):
    """How a frontend picks a worker: by cached prefix and load, or in turn."""

    KV = "kv"
    ROUND_ROBIN = "round_robin"


class ModelSpec(Document):
    """The model's public id and its context window in tokens."""

    id: str = Field(min_length=1)
    context_window: int = Field(ge=1)


class RouterSpec(Document):
    """How the fleet's frontend routes. A fleet has one frontend, so its deployments agree on this.

    `session_affinity_ttl_s`: how long a session stays with its worker after its last request; 0 switches it off.
    `migration_limit`: how often one request may move on to another worker after its own died.
    """

    mode: RouterMode = RouterMode.KV
    session_affinity_ttl_s: int = Field(default=600, ge=0, le=86_400)
    migration_limit: int = Field(default=3, ge=0, le=100)


class CacheSpec(Document):
    """Each replica's cache for prompts and answers: `blocks_per_replica` blocks of `block_size` tokens."""

    block_size: int = Field(default=64, ge=1, le=1024)
    blocks_per_replica: int = Field(default=16_384, ge=1, le=10_000_000)

    @field_validator("block_size")
    @classmethod
    def _power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            raise ValueError("must be a power of two")
        return value


class TimingSpec(Document):
    """How fast the simulated GPU is: 1 is Dynamo's own model of one, 2 is twice as fast. Decoding multiplies both.

    `prefill_tokens_per_s` is what edges reckon with, of one replica: what somebody measured, or nothing.
    """

    speedup_ratio: float = Field(default=1.0, gt=0, le=1000)
    decode_speedup_ratio: float = Field(default=1.0, gt=0, le=1000)
    prefill_tokens_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class ToolParser(StrEnum):
    """How a model writes tool calls; the frontend's parser of that name reads them. None: calls stay text."""

    NONE = ""
    GLM47 = "glm47"
    HERMES = "hermes"


class ReasoningParser(StrEnum):
    """How a model marks its reasoning. None: it stays text."""

    NONE = ""
    GLM45 = "glm45"


class SimEngine(Document):
    """Dynamo with its simulated GPU. `stop_grace_s`: how long a stopped process may finish its open requests."""

    kind: Literal["sim"]
    router: RouterSpec = RouterSpec()
    cache: CacheSpec = CacheSpec()
    timing: TimingSpec = TimingSpec()
    stop_grace_s: int = Field(default=30, ge=1, le=3600)


class ScriptEngine(Document):
    """For tests: real Dynamo, in front of a worker that says what its prompts tell it to say (`engine/script/`).

    `strict_tools`: Dynamo turns tools into a grammar, as production does; off, it constrains `required` calls only.
    """

    kind: Literal["script"]
    router: RouterSpec = RouterSpec()
    tool_parser: ToolParser = ToolParser.GLM47
    reasoning_parser: ReasoningParser = ReasoningParser.GLM45
    strict_tools: bool = True
    stop_grace_s: int = Field(default=30, ge=1, le=3600)


class DeploymentSpec(Document):
    """A deployment that can be run."""

    deployment_id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")
    model: ModelSpec
    pools: list[Pool] = Field(min_length=1)
    engine: Annotated[SimEngine | ScriptEngine, Field(discriminator="kind")]

    @field_validator("pools")
    @classmethod
    def _pools_fit_together(cls, pools: list[Pool]) -> list[Pool]:
        replicas = {pool.role: pool.replicas for pool in pools}
        if len(replicas) < len(pools):
            raise ValueError("each role may be named once")
        if PoolRole.AGGREGATED in replicas:
            if len(replicas) > 1:
                raise ValueError("an aggregated pool does prefill and decode itself and stands alone")
            return pools
        for role, other in ((PoolRole.PREFILL, PoolRole.DECODE), (PoolRole.DECODE, PoolRole.PREFILL)):
            if role not in replicas:
                raise ValueError(f"{other} needs a {role} pool beside it")
            if not replicas[role] and replicas[other]:
                raise ValueError(
                    f"{other} has {replicas[other]} replicas and {role} none; scale both to zero or neither")
        return pools

    @model_validator(mode="after")
    def _scripts_are_aggregated(self) -> Self:
        if isinstance(self.engine, ScriptEngine) and self.pools[0].role is not PoolRole.AGGREGATED:
            raise ValueError("pools: the scripted engine has aggregated pools only")
        return self

    @model_validator(mode="after")
    def _cache_holds_a_whole_context(self) -> Self:
        if not isinstance(self.engine, SimEngine):
            return self
        cache = self.engine.cache
        held = cache.block_size * cache.blocks_per_replica
        if held < self.model.context_window:
            raise ValueError(
                f"engine.cache: {cache.blocks_per_replica} blocks of {cache.block_size} hold {held} tokens, fewer than "
                f"the context window of {self.model.context_window}")
        return self

    @classmethod
    def from_desired(cls, desired: DesiredDeployment) -> Self:
        """The specification that the control plane asks for.

        Raises:
            SpecRefused: it is incomplete, contradicts itself, or names what this release does not know.
        """
        try:
            return cls.model_validate({
                "deployment_id": desired.deployment_id,
                "model": {"id": desired.model_id, "context_window": desired.context_window},
                "pools": desired.pools,
                "engine": desired.engine,
            })
        except ValidationError as error:
            raise SpecRefused(desired.deployment_id, "; ".join(map(_readable, error.errors()))) from None

    @property
    def replicas(self) -> int:
        """Replicas of all pools; 0 is scaled to zero."""
        return sum(pool.replicas for pool in self.pools)


def _readable(fault: ErrorDetails) -> str:
    place = fault["loc"]
    if fault["type"] == "union_tag_not_found":
        return "engine.kind: Field required"
    if fault["type"] == "union_tag_invalid":
        is_vllm = fault["ctx"]["tag"] == "vllm"
        return f"engine.kind: {'vllm is not in this release; use sim' if is_vllm else 'must be sim or script'}"
    if place[:1] == ("engine",):
        place = (place[0], *place[2:])  # the second says which kind's rules were applied
    field = ".".join(map(str, place))
    if fault["type"] == "extra_forbidden":
        return f"{field}: no such field"
    text = fault["msg"].removeprefix("Value error, ")
    return f"{field}: {text}" if field else text
