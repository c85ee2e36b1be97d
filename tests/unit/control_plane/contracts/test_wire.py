"""Messages between N and N+1, documents that people write, usage frames, logs, clocks."""

import json
from datetime import UTC, datetime

import msgspec
import pytest
from pydantic import ValidationError

from control_plane.contracts import ids, logs
from control_plane.contracts.agent_sync import AgentSyncAnswer
from control_plane.contracts.clock import ManualClock, SystemClock, utc
from control_plane.contracts.topology import TopologyDocument
from control_plane.contracts.usage import MeterSource, Outcome, UsageBatch, UsageOpen, UsageRecord


def test_a_message_with_a_field_of_the_next_release_is_read() -> None:
    answer = AgentSyncAnswer(epoch=1, lease_ttl_s=15, generation=0, desired=None, commands=[], next_wait_s=10)
    text = json.dumps(answer.model_dump() | {"of_the_next_release": 1})
    assert AgentSyncAnswer.model_validate_json(text) == answer


def test_a_message_is_immutable() -> None:
    answer = AgentSyncAnswer(epoch=1, lease_ttl_s=15, generation=0, desired=None, commands=[], next_wait_s=10)
    with pytest.raises(ValidationError):
        answer.epoch = 2  # type: ignore[misc]


def test_a_typo_in_a_document_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="datacentres"):
        TopologyDocument.model_validate({"datacentres": []})


@pytest.mark.parametrize("document", [
    {"regions": [{"id": "No Spaces"}]},
    {"datacenters": [{"id": "a", "region": "r", "weight": 0}]},
    {"fleets": [{"id": "f", "datacenter": "a", "ingress_url": "http://h/v1", "gpu_type": "x", "gpu_total": 1}]},
    {"deployments": [{"id": "d", "model": "m", "fleet": "f", "pools": [], "engine": {}}]},
])
def test_a_document_that_cannot_be_right_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TopologyDocument.model_validate(document)


def test_usage_frames_survive_the_wire_as_what_they_were() -> None:
    opened = UsageOpen(ids.uuid7(), "team_1", "key_1", "m", "pv_1", 1.5)
    record = UsageRecord(
        request_id=ids.uuid7(), team_id="team_1", key_id="key_1", model_id="m", datacenter_id="dc",
        price_version="pv_1", outcome=Outcome.COMPLETED, meter=MeterSource.ENGINE, streamed=True, http_status=200,
        prompt_tokens=3,
        cached_tokens=1, completion_tokens=2, reasoning_tokens=0, cost_usd="0.1", attempts=[], opened_at_s=1.0,
        duration_ms=2.0)
    batch = UsageBatch("boot", [opened, record])
    assert msgspec.json.decode(msgspec.json.encode(batch), type=UsageBatch) == batch


def test_a_usage_frame_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"boot_id":"b","frames":[{"type":"open","request_id":"x"}]}', type=UsageBatch)


def test_no_secret_gets_through_a_log() -> None:
    secret = ids.new_secret("sk_meridian_local")
    event = logs.redact(None, "info", {"event": f"key {secret} refused", "count": 1})
    assert event == {"event": "key sk_meridian_[redacted] refused", "count": 1}


@pytest.mark.parametrize("prefix", ["sk_meridian_local", "oper_meridian_prod", "enrol_meridian_local"])
def test_every_kind_of_secret_is_redacted(prefix: str) -> None:
    secret = ids.new_secret(prefix)
    assert secret not in str(logs.redact(None, "info", {"event": f"'{secret}'"}))


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(100.0)
    clock.advance(2.5)
    assert (clock.time_s(), clock.monotonic_s()) == (102.5, 2.5)


def test_the_system_clock_moves_and_utc_is_aware() -> None:
    clock = SystemClock()
    assert clock.monotonic_s() <= clock.monotonic_s()
    assert utc(0.0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert abs(clock.time_s() - datetime.now(UTC).timestamp()) < 5
