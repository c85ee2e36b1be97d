"""What an edge asks the control plane on behalf of a key's holder: its account, its team's credits, one generation.

`GET /edge/v1/keys/{key_id}/account`, `GET /edge/v1/teams/{team_id}/credits`,
`GET /edge/v1/teams/{team_id}/generations/{request_id}`; 404 where there is no such thing for that team.
"""

from datetime import datetime
from uuid import UUID

from control_plane.contracts.keys import Scope
from control_plane.contracts.pricing import Usd
from control_plane.contracts.usage import Outcome
from control_plane.contracts.wire import Wire


class KeyAccount(Wire):
    """`limit_usd` is the key's narrowest budget, `limit_reset` its interval (null: lifetime); both null without one."""

    key_id: str
    team_id: str
    name: str
    hint: str
    scopes: list[Scope]
    expires_at: datetime | None
    limit_usd: Usd | None
    limit_remaining_usd: Usd | None
    limit_reset: str | None
    usage_usd: Usd
    usage_daily_usd: Usd
    usage_weekly_usd: Usd
    usage_monthly_usd: Usd


class TeamCredits(Wire):
    """All that was ever credited to a team, and all that it ever used."""

    team_id: str
    total_credits_usd: Usd
    total_usage_usd: Usd


class GenerationAttempt(Wire):
    """One try in one datacenter; `status` 0: it never answered."""

    datacenter_id: str
    region: str
    status: int


class Generation(Wire):
    """One usage record as its owner sees it. Durations are milliseconds. `cache_discount_usd` is what the cached prefix
    saved."""

    request_id: UUID
    model_id: str
    created_at: datetime
    dialect: str
    outcome: Outcome
    streamed: bool
    http_status: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cost_usd: Usd
    cache_discount_usd: Usd
    price_version: str
    finish_reason: str
    ttft_ms: float | None
    duration_ms: float
    session: str
    service_tier: str
    resumes: int
    attempts: list[GenerationAttempt]
