"""What the control plane says of an account, in OpenRouter's shapes. Pure.

They hold money as JSON numbers, which a float is: for display, as everywhere that shape is spoken. The ledger's own
figures are exact and stay in the control plane.
"""

from decimal import Decimal
from typing import Any

from control_plane.contracts.account import Generation, GenerationAttempt, KeyAccount, TeamCredits
from control_plane.contracts.usage import Outcome
from edge_api.account.generation_id import generation_id

PROVIDER = "Meridian"


def key_shape(account: KeyAccount) -> dict[str, Any]:
    """`GET /key`."""
    return {"data": {
        "label": account.hint, "name": account.name, "limit": _usd(account.limit_usd),
        "limit_remaining": _usd(account.limit_remaining_usd), "limit_reset": account.limit_reset,
        "usage": _usd(account.usage_usd), "usage_daily": _usd(account.usage_daily_usd),
        "usage_weekly": _usd(account.usage_weekly_usd), "usage_monthly": _usd(account.usage_monthly_usd),
        "expires_at": None if account.expires_at is None else _time(account.expires_at.isoformat()),
        "is_free_tier": False, "is_management_key": False, "team_id": account.team_id,
        "scopes": [scope.value for scope in account.scopes]}}


def credits_shape(credits: TeamCredits) -> dict[str, Any]:
    """`GET /credits`."""
    return {"data": {"total_credits": _usd(credits.total_credits_usd), "total_usage": _usd(credits.total_usage_usd)}}


def generation_shape(generation: Generation) -> dict[str, Any]:
    """`GET /generation`. `latency` is to the first byte, `generation_time` the rest, in milliseconds."""
    cost, last = _usd(generation.cost_usd), generation.attempts[-1] if generation.attempts else None
    finish_reason = generation.finish_reason or None
    return {"data": {
        "id": generation_id(generation.request_id), "request_id": f"req_{generation.request_id.hex}",
        "model": generation.model_id, "created_at": _time(generation.created_at.isoformat()),
        "streamed": generation.streamed, "cancelled": generation.outcome is Outcome.CLIENT_GONE,
        "total_cost": cost, "usage": cost, "cache_discount": _usd(generation.cache_discount_usd),
        "tokens_prompt": generation.prompt_tokens, "tokens_completion": generation.completion_tokens,
        "native_tokens_prompt": generation.prompt_tokens, "native_tokens_completion": generation.completion_tokens,
        "native_tokens_reasoning": generation.reasoning_tokens, "native_tokens_cached": generation.cached_tokens,
        "latency": _ms(generation.ttft_ms),
        "generation_time": None if generation.ttft_ms is None else _ms(generation.duration_ms - generation.ttft_ms),
        "finish_reason": finish_reason, "native_finish_reason": finish_reason, "provider_name": PROVIDER,
        "data_region": last.region or None if last else None, "service_tier": generation.service_tier,
        "session_id": generation.session or None, "api_type": generation.dialect,
        "price_version": generation.price_version, "outcome": generation.outcome.value,
        "http_status": generation.http_status, "resumes": generation.resumes,
        "attempts": [_attempt(attempt) for attempt in generation.attempts]}}


def _attempt(attempt: GenerationAttempt) -> dict[str, Any]:
    return {"datacenter": attempt.datacenter_id, "region": attempt.region or None, "status": attempt.status or None}


def _usd(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def _ms(value: float | None) -> int | None:
    return None if value is None else round(value)


def _time(text: str) -> str:
    return text.replace("+00:00", "Z")
