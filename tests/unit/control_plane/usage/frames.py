"""Usage frames for tests: right in every part, unless a test changes one."""

from dataclasses import dataclass
from uuid import UUID

import msgspec

from control_plane.billing.rating import cost_of
from control_plane.contracts import ids
from control_plane.contracts.pricing import Price, usd_text
from control_plane.contracts.usage import Attempt, MeterSource, Outcome, UsageBatch, UsageOpen, UsageRecord

MODEL = "sim/glm-5.3"
PRICE = Price(version="pv_1", input_usd="0.0000006", cached_input_usd="0.00000011", output_usd="0.0000022")


@dataclass(frozen=True)
class Maker:
    """Makes frames of one team's key."""

    team_id: str
    key_id: str

    def record(self, time_s: float, **changes: object) -> UsageRecord:
        """A completed request that began at `time_s`, with the cost that it must have."""
        plain = UsageRecord(
            request_id=ids.uuid7(time_s), team_id=self.team_id, key_id=self.key_id, model_id=MODEL,
            datacenter_id="us-east-1", price_version=PRICE.version, outcome=Outcome.COMPLETED,
            meter=MeterSource.TOKEN_IDS, streamed=True, http_status=200, prompt_tokens=1_000, cached_tokens=600,
            completion_tokens=50, reasoning_tokens=10, cost_usd="0", attempts=[Attempt("us-east-1", 200)],
            opened_at_s=time_s, duration_ms=812.5, ttft_ms=40.25, finish_reason="stop")
        changed = msgspec.structs.replace(plain, **changes)
        return changed if "cost_usd" in changes else rated(changed)

    def opening(self, request_id: UUID, **changes: object) -> UsageOpen:
        """The opening of a request."""
        plain = UsageOpen(
            request_id=request_id, team_id=self.team_id, key_id=self.key_id, model_id=MODEL,
            price_version=PRICE.version, opened_at_s=ids.uuid7_time_s(request_id))
        return msgspec.structs.replace(plain, **changes)


def rated(record: UsageRecord) -> UsageRecord:
    """The record with its right cost."""
    try:
        return msgspec.structs.replace(record, cost_usd=usd_text(cost_of(record, PRICE)))
    except ValueError:
        return record


def batch(*frames: UsageOpen | UsageRecord, boot_id: str = "boot-1") -> bytes:
    """A sorted batch, as it goes over the wire."""
    return msgspec.json.encode(UsageBatch(boot_id, sorted(frames, key=lambda frame: frame.request_id)))
