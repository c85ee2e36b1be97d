"""Quality from usage records: what counts, for whom, and never a figure from too few."""

from typing import Any

import msgspec
import pytest

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.usage import Attempt, Outcome, UsageRecord
from edge_api.listings.endpoints import list_endpoints
from edge_api.listings.quality import MAX_SAMPLES, MIN_SAMPLES, Quality, percentiles
from edge_api.routing.table import build_table
from tests.unit.edge_api.builders import MODEL, snapshot, usage_record

WEST, EAST = "us-east-1", "eu-north-1"
FINE = usage_record()
LOST = msgspec.structs.replace(FINE, outcome=Outcome.UPSTREAM_LOST, attempts=[Attempt(WEST, 200, failed=True)])


def moved(*attempts: Attempt, **changes: Any) -> UsageRecord:
    return msgspec.structs.replace(FINE, attempts=list(attempts), **changes)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def quality(clock: ManualClock) -> Quality:
    return Quality(clock)


def note(quality: Quality, record: UsageRecord, times: int) -> None:
    for _ in range(times):
        quality.note(record)


def uptime(quality: Quality, datacenter: str = WEST, window: str = "5m") -> Any:
    return quality.figures(MODEL, datacenter)[f"uptime_last_{window}"]


def test_nothing_seen_is_null_never_a_hundred(quality: Quality) -> None:
    assert set(quality.figures(MODEL, WEST).values()) == {None}


def test_too_few_are_null(quality: Quality) -> None:
    note(quality, FINE, MIN_SAMPLES - 1)
    assert set(quality.figures(MODEL, WEST).values()) == {None}
    quality.note(FINE)
    assert uptime(quality) == 100


def test_broken_answers_count_against_the_datacenter(quality: Quality) -> None:
    note(quality, FINE, 90)
    note(quality, LOST, 10)
    assert uptime(quality) == 90


COUNT_AGAINST = {401, 402, 404, *range(500, 600)}
DO_NOT_COUNT = {400, 403, 413, 415, 422, 429}


@pytest.mark.parametrize("status", sorted(COUNT_AGAINST))
def test_what_counts_against_a_datacenter(quality: Quality, status: int) -> None:
    note(quality, FINE, MIN_SAMPLES)
    note(quality, moved(Attempt(WEST, status, failed=True)), MIN_SAMPLES)
    assert uptime(quality) == 50


@pytest.mark.parametrize("status", sorted(DO_NOT_COUNT))
def test_what_is_a_clients_fault_does_not_count(quality: Quality, status: int) -> None:
    note(quality, FINE, MIN_SAMPLES)
    note(quality, moved(Attempt(WEST, status), http_status=status), 50)
    assert uptime(quality) == 100


def test_uptime_of_a_log_of_all_status_codes(quality: Quality, clock: ManualClock) -> None:
    """One attempt of each status there is, and one more answer that broke, one that ended with an error, one that never
    came, and one that nobody waited for."""
    for status in range(100, 600):
        quality.note(moved(Attempt(WEST, status, failed=status not in {200} | DO_NOT_COUNT)))
    bad = {status for status in range(100, 600) if status != 200} - DO_NOT_COUNT
    for record in (LOST, moved(Attempt(WEST, 200), finish_reason="error"), moved(Attempt(WEST, 0, failed=True)),
                   moved(Attempt(WEST, 0), outcome=Outcome.CLIENT_GONE)):
        quality.note(record)
    note(quality, FINE, len(bad) + 2)
    assert bad >= COUNT_AGAINST
    assert [uptime(quality, window=window) for window in ("5m", "30m", "1d")] == [50, 50, 50]
    clock.advance(6 * 60)
    assert [uptime(quality, window=window) for window in ("5m", "30m", "1d")] == [None, 50, 50]


@pytest.mark.parametrize("status", [0, 500, 502, 503, 529])
def test_a_failed_attempt_counts_for_its_own_datacenter_alone(quality: Quality, status: int) -> None:
    note(quality, moved(Attempt(WEST, status, failed=True), Attempt(EAST, 200)), MIN_SAMPLES)
    assert (uptime(quality, WEST), uptime(quality, EAST)) == (0, 100)


def test_a_stream_that_went_on_elsewhere_broke_where_it_began(quality: Quality) -> None:
    note(quality, moved(Attempt(WEST, 200, failed=True), Attempt(EAST, 200, delivered=7)), MIN_SAMPLES)
    assert (uptime(quality, WEST), uptime(quality, EAST)) == (0, 100)


def test_every_choice_of_a_request_for_several_counts(quality: Quality) -> None:
    note(quality, moved(Attempt(WEST, 200), Attempt(WEST, 503, failed=True), Attempt(EAST, 200), Attempt(WEST, 200)),
         MIN_SAMPLES)
    assert (uptime(quality, WEST), uptime(quality, EAST)) == (pytest.approx(200 / 3), 100)
    assert quality.figures(MODEL, EAST)["latency_last_30m"] is None, "its time is not that of one answer"


@pytest.mark.parametrize("status", [200, 0])
def test_a_client_that_leaves_breaks_nothing(quality: Quality, status: int) -> None:
    note(quality, FINE, MIN_SAMPLES)
    note(quality, moved(Attempt(WEST, status), outcome=Outcome.CLIENT_GONE), MIN_SAMPLES)
    assert uptime(quality) == 100


def test_a_request_that_nobody_could_serve_is_nobodys_failure(quality: Quality) -> None:
    """A prompt that is too long broke an engine; the client is told 400."""
    note(quality, FINE, MIN_SAMPLES)
    note(quality, moved(Attempt(WEST, 500, failed=True), http_status=400, outcome=Outcome.UPSTREAM_LOST), 50)
    assert uptime(quality) == 100


def test_records_count_in_the_minute_that_they_ended(quality: Quality, clock: ManualClock) -> None:
    """The control plane was away for ten minutes: all that was noted then is told at once."""
    began_s = clock.time_s() - FINE.duration_ms / 1_000
    clock.advance(10 * 60)
    note(quality, msgspec.structs.replace(LOST, opened_at_s=began_s), MIN_SAMPLES)
    note(quality, msgspec.structs.replace(FINE, opened_at_s=clock.time_s()), MIN_SAMPLES)
    assert (uptime(quality), uptime(quality, window="30m")) == (100, 50)


def test_the_rate_of_wrong_tool_calls_is_that_of_a_day(quality: Quality, clock: ManualClock) -> None:
    for number in range(MIN_SAMPLES):
        assert quality.figures(MODEL, WEST)["tool_call_error_rate_1d"] is None
        quality.note_calls(MODEL, WEST, number % 50 == 0)
        clock.advance(60)
    assert quality.figures(MODEL, WEST)["tool_call_error_rate_1d"] == 0.02
    assert quality.figures(MODEL, EAST)["tool_call_error_rate_1d"] is None
    assert uptime(quality, window="1d") is None
    clock.advance(86_400)
    assert quality.figures(MODEL, WEST)["tool_call_error_rate_1d"] is None


def test_windows_forget(quality: Quality, clock: ManualClock) -> None:
    note(quality, LOST, MIN_SAMPLES)
    clock.advance(10 * 60)
    note(quality, msgspec.structs.replace(FINE, opened_at_s=clock.time_s()), MIN_SAMPLES)
    assert (uptime(quality), uptime(quality, window="30m"), uptime(quality, window="1d")) == (100, 50, 50)
    clock.advance(86_400)
    assert uptime(quality, window="1d") is None


def test_latencies_and_speeds_are_those_of_the_last_half_hour(quality: Quality, clock: ManualClock) -> None:
    for ms in range(1, 101):
        quality.note(msgspec.structs.replace(FINE, ttft_ms=float(ms), duration_ms=1_000.0, completion_tokens=ms))
    figures = quality.figures(MODEL, WEST)
    assert figures["latency_last_30m"] == {"p50": 0.05, "p75": 0.075, "p90": 0.09, "p99": 0.099}
    assert figures["throughput_last_30m"] == {"p50": 51, "p75": 26, "p90": 11, "p99": 2}
    clock.advance(31 * 60)
    assert quality.figures(MODEL, WEST)["latency_last_30m"] is None


def test_memory_is_bounded(quality: Quality, clock: ManualClock) -> None:
    for _ in range(3 * 1_440):
        quality.note(msgspec.structs.replace(FINE, opened_at_s=clock.time_s()))
        quality.note_calls(MODEL, WEST, False)
        clock.advance(60)
    (place,) = quality._places.values()
    assert len(place.tried.minutes) <= 1_440
    assert len(place.called.minutes) <= 1_440
    assert len(place.samples) <= MAX_SAMPLES


def test_percentiles_of_too_few_are_null() -> None:
    assert percentiles([1.0] * (MIN_SAMPLES - 1)) is None


def test_endpoints_are_the_datacenters_that_take_requests(quality: Quality) -> None:
    note(quality, FINE, MIN_SAMPLES)
    whole = snapshot(weights={WEST: 100, EAST: 100, "ap-south-1": 0})
    shown = list_endpoints(build_table(whole).models[MODEL], quality)["data"]
    assert [(one["tag"], one["uptime_last_5m"]) for one in shown["endpoints"]] == [
        (f"meridian/{EAST}", None), (f"meridian/{WEST}", 100)]
    assert shown["endpoints"][0]["pricing"]["prompt"] == "0.0000006"
    assert shown["endpoints"][0]["tool_call_error_rate_1d"] is None
