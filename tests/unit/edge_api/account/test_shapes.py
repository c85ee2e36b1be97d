"""Accounts in OpenRouter's shapes."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from control_plane.contracts import ids
from control_plane.contracts.account import Generation, GenerationAttempt, KeyAccount, TeamCredits
from control_plane.contracts.keys import Scope
from control_plane.contracts.usage import Outcome
from edge_api.account.shapes import credits_shape, generation_shape, key_shape

REQUEST = ids.uuid7(1_800_000_000)
ACCOUNT = KeyAccount(
    key_id="key_1", team_id="team_1", name="ci", hint="sk_meridian_local_\u2026AbCd", scopes=[Scope.INFERENCE],
    expires_at=None, limit_usd=None, limit_remaining_usd=None, limit_reset=None, usage_usd=Decimal("12.5"),
    usage_daily_usd=Decimal("1.2"), usage_weekly_usd=Decimal(4), usage_monthly_usd=Decimal("12.5"))
GENERATION = Generation(
    request_id=REQUEST, model_id="z-ai/glm-5.3", created_at=datetime(2026, 11, 30, 10, 53, 20, tzinfo=UTC),
    dialect="chat", outcome=Outcome.COMPLETED, streamed=True, http_status=200, prompt_tokens=146_012,
    cached_tokens=139_776, completion_tokens=412, reasoning_tokens=120, cost_usd=Decimal("0.02002336"),
    cache_discount_usd=Decimal("0.06849024"), price_version="pv_0192", finish_reason="stop", ttft_ms=420.4,
    duration_ms=4_900.0, session="sess_8f1c", service_tier="default", resumes=0,
    attempts=[GenerationAttempt(datacenter_id="us-east-1-a", region="us-east-1", status=200)])


def key(**changes: Any) -> dict[str, Any]:
    shown: dict[str, Any] = key_shape(ACCOUNT.model_copy(update=changes))["data"]
    return shown


def generation(**changes: Any) -> dict[str, Any]:
    shown: dict[str, Any] = generation_shape(GENERATION.model_copy(update=changes))["data"]
    return shown


def test_a_key_without_a_budget_has_no_limit() -> None:
    assert key() == {
        "label": "sk_meridian_local_\u2026AbCd", "name": "ci", "limit": None, "limit_remaining": None,
        "limit_reset": None, "usage": 12.5, "usage_daily": 1.2, "usage_weekly": 4, "usage_monthly": 12.5,
        "expires_at": None, "is_free_tier": False, "is_management_key": False, "team_id": "team_1",
        "scopes": ["inference"]}


def test_a_budget_is_shown_with_what_is_left_of_it() -> None:
    shown = key(limit_usd=Decimal(50), limit_remaining_usd=Decimal("37.5"), limit_reset="monthly")
    assert (shown["limit"], shown["limit_remaining"], shown["limit_reset"]) == (50, 37.5, "monthly")


def test_an_end_is_a_time_in_utc() -> None:
    assert key(expires_at=datetime(2026, 12, 1, tzinfo=UTC))["expires_at"] == "2026-12-01T00:00:00Z"


def test_credits_are_numbers() -> None:
    credits = TeamCredits(team_id="team_1", total_credits_usd=Decimal(500), total_usage_usd=Decimal("87.45"))
    assert credits_shape(credits) == {"data": {"total_credits": 500, "total_usage": 87.45}}


def test_a_generation_is_whole() -> None:
    assert generation() == {
        "id": f"gen_{REQUEST.hex}", "request_id": f"req_{REQUEST.hex}", "model": "z-ai/glm-5.3",
        "created_at": "2026-11-30T10:53:20Z", "streamed": True, "cancelled": False, "total_cost": 0.02002336,
        "usage": 0.02002336, "cache_discount": 0.06849024, "tokens_prompt": 146_012, "tokens_completion": 412,
        "native_tokens_prompt": 146_012, "native_tokens_completion": 412, "native_tokens_reasoning": 120,
        "native_tokens_cached": 139_776, "latency": 420, "generation_time": 4_480, "finish_reason": "stop",
        "native_finish_reason": "stop", "provider_name": "Meridian", "data_region": "us-east-1",
        "service_tier": "default", "session_id": "sess_8f1c", "api_type": "chat", "price_version": "pv_0192",
        "outcome": "completed", "http_status": 200, "resumes": 0,
        "attempts": [{"datacenter": "us-east-1-a", "region": "us-east-1", "status": 200}]}


def test_what_never_came_is_null() -> None:
    shown = generation(ttft_ms=None, finish_reason="", session="", attempts=[])
    assert [shown[name] for name in (
        "latency", "generation_time", "finish_reason", "session_id", "data_region")] == 5 * [None]


def test_an_attempt_that_was_never_answered_has_no_status() -> None:
    attempt = GenerationAttempt(datacenter_id="gone", region="", status=0)
    assert generation(attempts=[attempt])["attempts"] == [{"datacenter": "gone", "region": None, "status": None}]


def test_a_client_that_left_is_told_so() -> None:
    assert generation(outcome=Outcome.CLIENT_GONE)["cancelled"] is True
