"""Frames as rows of the tables. Pure. `edge_id` is who signed the batch, never what a frame claims."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from control_plane.billing.booking import Charge
from control_plane.contracts import ids
from control_plane.contracts.clock import utc
from control_plane.contracts.usage import UsageOpen, UsageRecord
from control_plane.usage.intake import MAX_TEXT, Facts, Frame, Reason, body_sha, cost_usd


def record(edge_id: str, frame: UsageRecord, facts: Facts) -> dict[str, Any]:
    """A row of `usage_record`, as JSON; the cost is the one that was rated here."""
    return {
        "day": ids.uuid7_day(frame.request_id), "id": frame.request_id, "edge_id": edge_id,
        "team_id": frame.team_id, "key_id": frame.key_id, "model_id": frame.model_id,
        "datacenter_id": frame.datacenter_id, "price_version": frame.price_version,
        "outcome": frame.outcome, "meter": frame.meter, "streamed": frame.streamed,
        "http_status": frame.http_status, "prompt_tokens": frame.prompt_tokens,
        "cached_tokens": frame.cached_tokens, "completion_tokens": frame.completion_tokens,
        "reasoning_tokens": frame.reasoning_tokens, "cost_usd": cost_usd(frame, facts),
        "attempts": frame.attempts, "opened_at": utc(frame.opened_at_s), "duration_ms": frame.duration_ms,
        "ttft_ms": frame.ttft_ms, "finish_reason": frame.finish_reason, "body_sha": _bytea(frame),
        "dialect": frame.dialect, "session": frame.session, "service_tier": frame.service_tier,
        "resumes": frame.resumes,
    }


def charges(records: Iterable[UsageRecord], stored: Mapping[UUID, bytes], new: Collection[UUID],
            facts: Facts) -> list[Charge]:
    """What the records cost that are new in this transaction, each once: a repeat in the same batch costs nothing, and
    of two that contradict each other only the stored one counts."""
    fresh = {record.request_id: record for record in records
             if record.request_id in new and stored[record.request_id] == body_sha(record)}
    return [Charge(record.team_id, record.key_id, ids.uuid7_day(record.request_id), cost_usd(record, facts))
            for record in fresh.values()]


def opening(edge_id: str, boot_id: str, frame: UsageOpen) -> dict[str, Any]:
    """A row of `usage_open`, as JSON."""
    return {
        "id": frame.request_id, "edge_id": edge_id, "boot_id": boot_id.replace("\0", "")[:MAX_TEXT],
        "team_id": frame.team_id, "key_id": frame.key_id, "model_id": frame.model_id,
        "price_version": frame.price_version, "opened_at": utc(frame.opened_at_s), "body_sha": _bytea(frame),
    }


def quarantined(edge_id: str, frame: Frame, reason: Reason) -> dict[str, Any]:
    """A row of `usage_quarantine`. Its JSON has no NUL, which Postgres cannot hold."""
    content = msgspec.json.decode(msgspec.json.encode(frame).replace(b"\\u0000", b"\\ufffd"))
    return {"request_id": frame.request_id, "edge_id": edge_id, "reason": reason.value, "frame": content,
            "body_sha": body_sha(frame)}


def _bytea(frame: Frame) -> str:
    return f"\\x{body_sha(frame).hex()}"
