"""API keys as the edge sees them: a digest in, a principal out, and what became of keys since as delta streams."""

from enum import StrEnum

from pydantic import Field

from control_plane.contracts.wire import Wire


class Scope(StrEnum):
    """What an API key may do."""

    INFERENCE = "inference"
    USAGE_READ = "usage:read"


class LimitScope(StrEnum):
    """Whose limit it is."""

    KEY = "key"
    TEAM = "team"


class RateLimit(Wire):
    """One limit that binds a key, or all keys of a team together. `model_id` null: over all models. A figure that is
    null does not limit."""

    scope: LimitScope
    scope_id: str
    model_id: str | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None


class KeyLookup(Wire):
    """`POST /edge/v1/keys/lookup`: the SHA-256 of a key in hex, never the key."""

    digest: str


class Principal(Wire):
    """Whom a key speaks for. 404 instead of it means that nobody issued the key, or that it was revoked or expired.

    `expires_at_s` is a Unix time; `always_usage` asks for the usage chunk on every stream. `limits` are all that bind
    the key. `money_scopes` are those whose money must be leased before a request is sent; none: nobody limits it.
    `allowed_models` and `regions` null: any. `cache_salt` keeps the team's cached prefixes apart from other teams'; it
    is the same on every edge.
    """

    key_id: str
    team_id: str
    key_name: str
    scopes: list[Scope]
    always_usage: bool = False
    expires_at_s: float | None = None
    limits: list[RateLimit] = Field(default_factory=list)
    money_scopes: list[LimitScope] = Field(default_factory=list)
    allowed_models: list[str] | None = None
    regions: list[str] | None = None
    cache_salt: str = ""


class Revocation(Wire):
    """A key that must not be served any more, at once or, after a rotation with grace, from `effective_at_s` (Unix
    time) on. `seq` grows by commit order and is where the next poll resumes."""

    seq: int
    digest: str
    effective_at_s: float | None = None


class TeamChange(Wire):
    """What binds a team's keys has changed: an edge looks those that it holds up again, and serves what it knows until
    it is answered. `seq` grows by commit order and is where the next poll resumes."""

    seq: int
    team_id: str
