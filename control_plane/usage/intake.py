"""Judges what an edge ships, before it is stored. Pure: frames, prices, keys and the time go in, reasons come out.

A frame with a reason goes to quarantine: it is kept and alarmed, never billed and never sent again. A batch that is
not a batch at all is refused as a whole.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from itertools import pairwise
from uuid import UUID

import msgspec

from control_plane.billing.rating import cost_of, is_cost_right
from control_plane.contracts import ids
from control_plane.contracts.clock import utc
from control_plane.contracts.pricing import Price
from control_plane.contracts.usage import UsageBatch, UsageOpen, UsageRecord
from control_plane.errors import Refusal

MAX_FRAMES = 500
MAX_AHEAD_S = 300.0
MAX_TOKENS = 10**12
MAX_DURATION_MS = 35 * 86_400_000.0
MAX_TIME_S = 253_402_300_799.0
MAX_TEXT = 512
MAX_ATTEMPTS = 64
UUID7 = 7

Frame = UsageOpen | UsageRecord


class Reason(StrEnum):
    """Why a frame is in quarantine."""

    ID_TIME = "id_time"
    BAD_VALUE = "bad_value"
    UNKNOWN_KEY = "unknown_key"
    UNKNOWN_PRICE = "unknown_price"
    WRONG_COST = "wrong_cost"
    CONTRADICTION = "contradiction"


@dataclass(frozen=True, slots=True)
class Facts:
    """What frames are judged by: model and price by version, team by key, and the oldest and newest time of an id."""

    prices: Mapping[str, tuple[str, Price]]
    teams: Mapping[str, str]
    oldest_s: float
    newest_s: float


def decode(body: bytes) -> UsageBatch:
    """The batch in `body`.

    Raises:
        Refusal: it is no batch, longer than 500 frames, or not sorted by request id.
    """
    try:
        batch = msgspec.json.decode(body, type=UsageBatch)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refusal(f"this is no usage batch: {error}", code="bad_batch") from error
    if len(batch.frames) > MAX_FRAMES:
        raise Refusal(f"{len(batch.frames)} frames; at most {MAX_FRAMES} in a batch", code="bad_batch")
    if any(later.request_id < earlier.request_id for earlier, later in pairwise(batch.frames)):
        raise Refusal("the frames are not sorted by request id", code="bad_batch")
    return batch


def reason_against(frame: Frame, facts: Facts) -> Reason | None:
    """Why `frame` cannot be stored, or nothing."""
    if not is_timely(frame.request_id, facts.oldest_s, facts.newest_s):
        return Reason.ID_TIME
    if not _is_storable(frame):
        return Reason.BAD_VALUE
    if facts.teams.get(frame.key_id) != frame.team_id:
        return Reason.UNKNOWN_KEY
    model_id, price = facts.prices.get(frame.price_version, ("", None))
    if price is None or model_id != frame.model_id:
        return Reason.UNKNOWN_PRICE
    if isinstance(frame, UsageRecord) and not is_cost_right(frame, price):
        return Reason.WRONG_COST
    return None


def is_timely(request_id: UUID, oldest_s: float, newest_s: float) -> bool:
    """Whether the id is of version 7 and its time lies in the window for which partitions exist."""
    return request_id.version == UUID7 and oldest_s <= ids.uuid7_time_s(request_id) <= newest_s


def days_of(frames: Iterable[Frame], oldest_s: float, newest_s: float) -> set[date]:
    """The partitions that these frames need."""
    return {ids.uuid7_day(frame.request_id) for frame in frames if is_timely(frame.request_id, oldest_s, newest_s)}


def hours_of(records: Iterable[UsageRecord]) -> set[datetime]:
    """The hours whose sums these records change."""
    return {hour_of(record.request_id) for record in records}


def hour_of(request_id: UUID) -> datetime:
    """The start of the hour in which the request began, by its id."""
    return utc(ids.uuid7_time_s(request_id)).replace(minute=0, second=0, microsecond=0)


def body_sha(frame: Frame) -> bytes:
    """The digest of a frame's content, by which a repeat and a contradiction are told apart."""
    return sha256(msgspec.json.encode(frame)).digest()


def cost_usd(record: UsageRecord, facts: Facts) -> Decimal:
    """The exact cost of a record that was found right."""
    return cost_of(record, facts.prices[record.price_version][1])


def _is_storable(frame: Frame) -> bool:
    """Whether every value fits its column: one that does not would make its whole batch fail for ever."""
    texts = [value for value in msgspec.structs.astuple(frame) if isinstance(value, str)]
    if any("\0" in text or len(text) > MAX_TEXT for text in texts) or not 0 <= frame.opened_at_s <= MAX_TIME_S:
        return False
    if isinstance(frame, UsageOpen):
        return True
    counts = (frame.prompt_tokens, frame.cached_tokens, frame.completion_tokens, frame.reasoning_tokens, frame.resumes)
    durations_ms = (frame.duration_ms, frame.ttft_ms or 0.0)
    attempts_fit = len(frame.attempts) <= MAX_ATTEMPTS and all(
        "\0" not in attempt.datacenter_id and len(attempt.datacenter_id) <= MAX_TEXT and 0 <= attempt.status <= 999
        and 0 <= attempt.delivered <= MAX_TOKENS for attempt in frame.attempts)
    return (max(counts) <= MAX_TOKENS and frame.resumes >= 0 and 0 <= frame.http_status <= 999 and attempts_fit
            and all(0 <= duration_ms <= MAX_DURATION_MS for duration_ms in durations_ms))
