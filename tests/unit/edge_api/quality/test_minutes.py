"""Minutes of quality: each record counts once, whole values are told until they are acknowledged."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.evidence import ITL_BOUNDS_S, TTFT_BOUNDS_S, QualityMinute
from control_plane.contracts.usage import Attempt, Outcome, UsageRecord
from edge_api.listings.quality import MIN_SAMPLES, Quality
from edge_api.quality.minutes import KEPT_S, MAX_KEPT, MAX_TOLD, MINUTE_S, Minutes
from tests.unit.edge_api.builders import MODEL, usage_record

WEST, EAST = "us-east-1", "eu-north-1"
OPENED_S = 1_800_000_000.0
FINE = usage_record()


def record(*attempts: Attempt, **changes: Any) -> UsageRecord:
    attempts = attempts or (Attempt(WEST, 200),)
    return msgspec.structs.replace(FINE, attempts=list(attempts), datacenter_id=attempts[-1].datacenter_id, **changes)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def minutes(clock: ManualClock) -> Minutes:
    return Minutes(clock)


def told(minutes: Minutes, datacenter: str = WEST) -> QualityMinute:
    (one,) = [one for one in minutes.report() if one.datacenter_id == datacenter]
    return one


def test_a_request_counts_in_the_minute_in_which_it_ended(minutes: Minutes) -> None:
    minutes.note(record(opened_at_s=OPENED_S + 59.0, duration_ms=2_000.0))
    assert told(minutes).minute == int(OPENED_S) // MINUTE_S * MINUTE_S + MINUTE_S


def test_each_attempt_counts_where_it_was_sent_to(minutes: Minutes) -> None:
    minutes.note(record(Attempt(WEST, 502, failed=True), Attempt(EAST, 200)))
    west, east = told(minutes), told(minutes, EAST)
    assert (west.succeeded, west.failed, west.excluded) == (0, 1, 0)
    assert (east.succeeded, east.failed, east.excluded) == (1, 0, 0)


@pytest.mark.parametrize(("attempt", "changes", "counts"), [
    (Attempt(WEST, 200), {}, (1, 0, 0)),
    (Attempt(WEST, 200, failed=True), {"outcome": Outcome.UPSTREAM_LOST}, (0, 1, 0)),
    (Attempt(WEST, 200), {"finish_reason": "error"}, (0, 1, 0)),
    (Attempt(WEST, 0, failed=True), {"http_status": 503}, (0, 1, 0)),
    (Attempt(WEST, 0), {"outcome": Outcome.CLIENT_GONE, "http_status": 499}, (0, 0, 1)),
    (Attempt(WEST, 429, failed=True), {"http_status": 429}, (0, 0, 1)),
    (Attempt(WEST, 400), {"http_status": 400}, (0, 0, 1)),
])
def test_what_counts_and_what_does_not(minutes: Minutes, attempt: Attempt, changes: dict[str, Any],
                                       counts: tuple[int, int, int]) -> None:
    minutes.note(record(attempt, **changes))
    one = told(minutes)
    assert (one.succeeded, one.failed, one.excluded) == counts


def test_tokens_count_for_the_datacenter_that_had_the_request_last(minutes: Minutes) -> None:
    minutes.note(record(Attempt(WEST, 502, failed=True), Attempt(EAST, 200), prompt_tokens=100, cached_tokens=60))
    west, east = told(minutes), told(minutes, EAST)
    assert (west.prompt_tokens, west.cached_tokens, west.completion_tokens) == (0, 0, 0)
    assert (east.prompt_tokens, east.cached_tokens, east.completion_tokens) == (100, 60, 7)


def test_times_are_counted_by_bucket_and_a_bound_belongs_to_its_bucket(minutes: Minutes) -> None:
    for ttft_ms in (50.0, 50.1, 200_000.0):
        minutes.note(record(ttft_ms=ttft_ms, duration_ms=ttft_ms + 57.0, opened_at_s=OPENED_S - ttft_ms / 1_000))
    one = told(minutes)
    assert (one.ttft[0], one.ttft[1], one.ttft[-1], sum(one.ttft)) == (1, 1, 1, 3)
    assert one.itl[ITL_BOUNDS_S.index(0.01)] == 3
    assert (len(one.ttft), len(one.itl)) == (len(TTFT_BOUNDS_S) + 1, len(ITL_BOUNDS_S) + 1)


@pytest.mark.parametrize("changes", [
    {"attempts": [Attempt(EAST, 502, failed=True), Attempt(WEST, 200)]}, {"ttft_ms": None},
    {"attempts": [Attempt(WEST, 200, failed=True)]}])
def test_times_of_what_several_had_a_part_in_say_nothing_of_one(minutes: Minutes, changes: dict[str, Any]) -> None:
    minutes.note(msgspec.structs.replace(FINE, **changes))
    assert sum(told(minutes).ttft) == sum(told(minutes).itl) == 0


@pytest.mark.parametrize("changes", [{"streamed": False}, {"completion_tokens": 1}])
def test_what_has_no_gaps_between_tokens_has_none_counted(minutes: Minutes, changes: dict[str, Any]) -> None:
    minutes.note(record(**changes))
    assert (sum(told(minutes).ttft), sum(told(minutes).itl)) == (1, 0)


def test_a_minute_is_told_whole_until_it_is_acknowledged(minutes: Minutes) -> None:
    minutes.note(FINE)
    assert told(minutes) == told(minutes)
    minutes.acknowledged()
    assert minutes.report() == []
    minutes.note(FINE)
    assert told(minutes).succeeded == 2


def test_what_changes_while_a_report_is_on_its_way_is_told_again(minutes: Minutes) -> None:
    minutes.note(FINE)
    minutes.report()
    minutes.note(FINE)
    minutes.acknowledged()
    assert told(minutes).succeeded == 2


def test_an_acknowledged_minute_is_forgotten_after_a_while(minutes: Minutes, clock: ManualClock) -> None:
    minutes.note(FINE)
    minutes.report()
    minutes.acknowledged()
    clock.advance(KEPT_S + 1)
    assert minutes.report() == []
    minutes.note(FINE)
    assert told(minutes).succeeded == 1


def test_one_that_nobody_acknowledged_is_kept(minutes: Minutes, clock: ManualClock) -> None:
    minutes.note(FINE)
    minutes.report()
    clock.advance(10 * KEPT_S)
    assert told(minutes).succeeded == 1


def test_none_is_forgotten_while_records_of_it_may_be_on_their_way(clock: ManualClock) -> None:
    minutes = Minutes(clock, is_behind=lambda: True)
    minutes.note(FINE)
    minutes.report()
    minutes.acknowledged()
    clock.advance(10 * KEPT_S)
    minutes.report()
    minutes.note(FINE)
    assert told(minutes).succeeded == 2


def test_a_report_holds_the_oldest_first_and_no_more_than_fits(minutes: Minutes) -> None:
    for at in range(MAX_TOLD + 10):
        minutes.note(record(opened_at_s=OPENED_S + 60.0 * at))
    first = minutes.report()
    assert [one.minute for one in first] == sorted(one.minute for one in first)
    minutes.acknowledged()
    assert (len(first), len(minutes.report())) == (MAX_TOLD, 10)


def test_the_memory_is_bounded(minutes: Minutes) -> None:
    for at in range(MAX_KEPT + 10):
        minutes.note(record(opened_at_s=OPENED_S + 60.0 * at))
    kept = 0
    while report := minutes.report():
        kept += len(report)
        minutes.acknowledged()
    assert kept == MAX_KEPT


attempts = st.lists(st.builds(Attempt, st.sampled_from([WEST, EAST]), st.sampled_from([0, 200, 400, 429, 500, 503]),
                              st.just(0), st.booleans()), min_size=1, max_size=3)


@given(st.lists(st.tuples(attempts, st.sampled_from([200, 400, 499, 503]), st.sampled_from(["stop", "error", ""])),
                max_size=30))
def test_uptime_is_that_of_the_listings(told_of: list[tuple[list[Attempt], int, str]]) -> None:
    clock = ManualClock()
    minutes, quality = Minutes(clock), Quality(clock)
    for several, status, reason in told_of:
        one = record(*several, http_status=status, finish_reason=reason, opened_at_s=clock.time_s())
        for _ in range(MIN_SAMPLES):
            minutes.note(one)
            quality.note(one)
    for place in (WEST, EAST):
        mine = [one for one in minutes.report() if one.datacenter_id == place]
        good, bad = sum(one.succeeded for one in mine), sum(one.failed for one in mine)
        uptime = quality.figures(MODEL, place)["uptime_last_5m"]
        assert uptime == (pytest.approx(100 * good / (good + bad)) if good + bad else None)
