"""What a restart makes of the outbox that a dead process left."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from control_plane.contracts import ids
from control_plane.contracts.clock import ManualClock
from control_plane.contracts.usage import MeterSource, Outcome
from edge_api.metering.frames import encode
from edge_api.metering.outbox import Outbox, segment_path
from edge_api.metering.recovery import close_lost, edge_lost, repair
from edge_api.metrics import Metrics
from tests.unit.edge_api.builders import usage_open, usage_record
from tests.unit.edge_api.metering.test_outbox import on_disk

BIG = 1 << 30


def leave(directory: Path, *segments: bytes) -> None:
    """Segments as an earlier process may have left them."""
    for number, content in enumerate(segments, 1):
        segment_path(directory, number).write_bytes(content)


def quarantined(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((directory / "quarantine").glob("*"))]


def test_an_edge_without_history_has_nothing_to_repair(tmp_path: Path) -> None:
    assert repair(tmp_path / "outbox", Metrics()) == []


def test_requests_without_a_record_are_found(tmp_path: Path) -> None:
    done, lost = usage_open(), usage_open()
    leave(tmp_path, encode(done) + encode(lost) + encode(usage_record(done.request_id)))
    assert repair(tmp_path, Metrics()) == [lost]


def test_a_record_in_a_later_segment_resolves_a_request(tmp_path: Path) -> None:
    opened = usage_open()
    leave(tmp_path, encode(opened), encode(usage_record(opened.request_id)))
    assert repair(tmp_path, Metrics()) == []


def test_a_request_that_was_carried_forward_is_found_once(tmp_path: Path) -> None:
    opened = usage_open()
    leave(tmp_path, encode(opened), encode(opened))
    assert repair(tmp_path, Metrics()) == [opened]


@pytest.mark.parametrize("kept", [1, 4, 11, 12, 40])
def test_a_torn_tail_is_cut_off_with_a_log_line(tmp_path: Path, kept: int) -> None:
    whole, torn = encode(usage_record()), encode(usage_record())
    leave(tmp_path, whole + torn[:kept])
    with capture_logs() as logs:
        repair(tmp_path, Metrics())
    assert segment_path(tmp_path, 1).read_bytes() == whole
    assert [(line["event"], line["dropped_bytes"]) for line in logs] == [("outbox_tail_torn", kept)]


def test_damage_in_the_middle_is_set_aside_loudly_and_the_rest_is_kept(tmp_path: Path) -> None:
    first, last = usage_record(), usage_record()
    hit = bytearray(encode(usage_record()))
    hit[40] ^= 1
    leave(tmp_path, encode(first) + bytes(hit) + encode(last))
    metrics = Metrics()
    with capture_logs() as logs:
        repair(tmp_path, metrics)
    assert quarantined(tmp_path) == [bytes(hit)]
    assert [(line["event"], line["log_level"]) for line in logs] == [("outbox_quarantined", "error")]
    assert b"meridian_edge_outbox_quarantined_total 1.0" in metrics.text()
    assert on_disk(tmp_path) == [first, last]


def test_a_torn_tail_of_an_older_segment_is_set_aside(tmp_path: Path) -> None:
    torn = encode(usage_record())[:30]
    leave(tmp_path, encode(usage_record()) + torn, encode(usage_record()))
    repair(tmp_path, Metrics())
    assert quarantined(tmp_path) == [torn]


def test_damage_is_reported_once_over_many_starts(tmp_path: Path) -> None:
    leave(tmp_path, b"garbage" + encode(usage_record()), encode(usage_record()))
    repair(tmp_path, Metrics())
    with capture_logs() as logs:
        repair(tmp_path, Metrics())
    assert logs == []


def test_lost_requests_are_closed_once_over_many_starts(tmp_path: Path) -> None:
    lost = usage_open()
    leave(tmp_path, encode(lost))
    for _ in range(3):
        found = repair(tmp_path, Metrics())
        outbox = Outbox(tmp_path, BIG, BIG, Metrics())
        close_lost(outbox, found, ManualClock())
        outbox.close()
    assert [type(usage).__name__ for usage in on_disk(tmp_path)] == ["UsageOpen", "UsageRecord"]


def test_a_lost_request_is_provisional_and_costs_nothing() -> None:
    opened = usage_open(ids.uuid7(), opened_at_s=100.0)
    record = edge_lost(opened, now_s=107.5)
    assert (record.request_id, record.team_id, record.key_id) == (opened.request_id, opened.team_id, opened.key_id)
    assert (record.outcome, record.meter, record.cost_usd) == (Outcome.EDGE_LOST, MeterSource.PROVISIONAL, "0")
    assert (record.prompt_tokens, record.completion_tokens, record.duration_ms) == (0, 0, 7_500.0)


def test_a_clock_that_went_back_makes_no_negative_duration() -> None:
    assert edge_lost(usage_open(opened_at_s=100.0), now_s=50.0).duration_ms == 0.0
