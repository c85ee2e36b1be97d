"""Usage on the wire: what an edge's outbox holds and ships, and what the control plane answers.

msgspec, because the edge writes one of these for every request. `POST /edge/v1/usage` takes a `UsageBatch` as JSON,
sorted by request id; it is safe to send again.
"""

from enum import StrEnum
from uuid import UUID

import msgspec


class Outcome(StrEnum):
    """How a request ended. Only `COMPLETED` and `CLIENT_GONE` and `UPSTREAM_LOST` can carry tokens to bill."""

    COMPLETED = "completed"
    CLIENT_GONE = "client_gone"
    UPSTREAM_LOST = "upstream_lost"
    EDGE_LOST = "edge_lost"


class MeterSource(StrEnum):
    """Where the counts come from. `PROVISIONAL` waits for the engine's witness."""

    ENGINE = "engine"
    TOKEN_IDS = "token_ids"  # noqa: S105
    PROVISIONAL = "provisional"


class Attempt(msgspec.Struct, frozen=True):
    """One try in one datacenter. `status` is the HTTP status that it answered, 0 if it never did. `delivered` counts
    the completion tokens that the client had from earlier attempts when this one began: more than 0 is a resumed
    stream. `failed`: the datacenter let the request down: no answer, an error of its own, or an answer that broke off.
    Neither a client that left nor a request that is refused is that."""

    datacenter_id: str
    status: int
    delivered: int = 0
    failed: bool = False


class UsageOpen(msgspec.Struct, frozen=True, tag="open"):
    """A request that is about to be sent upstream. Written before it is sent, so that a killed edge leaves a trace."""

    request_id: UUID
    team_id: str
    key_id: str
    model_id: str
    price_version: str
    opened_at_s: float


class UsageRecord(msgspec.Struct, frozen=True, tag="record"):
    """What one request used: at most one for each request id, for ever.

    `cached_tokens` are part of `prompt_tokens`, `reasoning_tokens` of `completion_tokens`. `cost_usd` is exact decimal
    text, rated by `price_version`. Times are Unix seconds, durations milliseconds. `ttft_ms` is null if no byte came.
    `dialect` is the wire format that the client spoke, `session` the routing key of its session, `service_tier` the
    tier that served; `resumes` counts how often the stream went on in another datacenter.
    """

    request_id: UUID
    team_id: str
    key_id: str
    model_id: str
    datacenter_id: str
    price_version: str
    outcome: Outcome
    meter: MeterSource
    streamed: bool
    http_status: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cost_usd: str
    attempts: list[Attempt]
    opened_at_s: float
    duration_ms: float
    ttft_ms: float | None = None
    finish_reason: str = ""
    dialect: str = "chat"
    session: str = ""
    service_tier: str = "default"
    resumes: int = 0


class UsageBatch(msgspec.Struct, frozen=True):
    """At most 500 frames of one edge, sorted by request id."""

    boot_id: str
    frames: list[UsageOpen | UsageRecord]


class Verdict(StrEnum):
    """What became of a frame. `CONFLICT`: the id is stored with other content; kept aside and alarmed, not resent."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


class UsageAnswer(msgspec.Struct, frozen=True):
    """One verdict for each frame, in the batch's order. Any answer but 200 means that nothing was stored."""

    verdicts: list[Verdict]
