"""The judgement on shipped frames."""

from decimal import Decimal
from uuid import UUID, uuid4

import msgspec
import pytest

from control_plane.contracts import ids
from control_plane.contracts.usage import Attempt, Outcome, UsageBatch
from control_plane.errors import Refusal
from control_plane.usage import intake
from control_plane.usage.intake import Facts, Reason
from tests.unit.control_plane.usage.frames import MODEL, PRICE, Maker, batch

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0
MAKER = Maker("team_1", "key_1")
FACTS = Facts({"pv_1": (MODEL, PRICE)}, {"key_1": "team_1"}, NOW_S - 35 * DAY_S, NOW_S + 300)


def test_a_right_record_has_nothing_against_it() -> None:
    assert intake.reason_against(MAKER.record(NOW_S), FACTS) is None


def test_a_right_opening_has_nothing_against_it() -> None:
    assert intake.reason_against(MAKER.opening(ids.uuid7(NOW_S)), FACTS) is None


@pytest.mark.parametrize("time_s", [NOW_S - 35 * DAY_S + 1, NOW_S + 299])
def test_an_id_within_the_window_is_timely(time_s: float) -> None:
    assert intake.reason_against(MAKER.record(time_s), FACTS) is None


@pytest.mark.parametrize("time_s", [NOW_S - 35 * DAY_S - 1, NOW_S + 301, 0.0, 2**48 / 1000 - 1])
def test_an_id_outside_the_window_is_put_aside(time_s: float) -> None:
    record = MAKER.record(NOW_S, request_id=ids.uuid7(time_s))
    assert intake.reason_against(record, FACTS) is Reason.ID_TIME


def test_an_id_of_another_version_is_put_aside() -> None:
    assert intake.reason_against(MAKER.record(NOW_S, request_id=uuid4()), FACTS) is Reason.ID_TIME


@pytest.mark.parametrize("changes", [{"key_id": "key_2"}, {"team_id": "team_2"}])
def test_a_key_that_is_not_the_teams_is_put_aside(changes: dict[str, object]) -> None:
    assert intake.reason_against(MAKER.record(NOW_S, **changes), FACTS) is Reason.UNKNOWN_KEY


@pytest.mark.parametrize("changes", [{"price_version": "pv_2"}, {"model_id": "sim/other"}])
def test_a_price_that_is_not_the_models_is_put_aside(changes: dict[str, object]) -> None:
    assert intake.reason_against(MAKER.record(NOW_S, **changes), FACTS) is Reason.UNKNOWN_PRICE


@pytest.mark.parametrize("cost_usd", ["0.000416000001", "0", "-1", "NaN", "Infinity", "", "free", "1e999999999"])
def test_a_wrong_cost_is_put_aside(cost_usd: str) -> None:
    assert intake.reason_against(MAKER.record(NOW_S, cost_usd=cost_usd), FACTS) is Reason.WRONG_COST


@pytest.mark.parametrize("cost_usd", ["0.000416", "0.00041600", "4.16E-4"])
def test_the_right_cost_may_be_spelled_in_any_way(cost_usd: str) -> None:
    record = MAKER.record(NOW_S, cost_usd=cost_usd)
    assert intake.reason_against(record, FACTS) is None
    assert intake.cost_usd(record, FACTS) == Decimal("0.000416")


@pytest.mark.parametrize("changes", [
    {"cached_tokens": 1_001}, {"prompt_tokens": -1}, {"reasoning_tokens": 51}, {"completion_tokens": -5}])
def test_impossible_counts_are_put_aside(changes: dict[str, object]) -> None:
    assert intake.reason_against(MAKER.record(NOW_S, **changes), FACTS) is Reason.WRONG_COST


@pytest.mark.parametrize("changes", [
    {"prompt_tokens": 2**63}, {"http_status": 2**31}, {"opened_at_s": 1e300}, {"opened_at_s": -1.0},
    {"duration_ms": 1e300}, {"duration_ms": -1.0}, {"ttft_ms": -1.0}, {"finish_reason": "a\0b"},
    {"finish_reason": "x" * 513}, {"attempts": [Attempt("a\0", 200)]}, {"attempts": [Attempt("a", 10**10)]},
    {"attempts": [Attempt("a" * 513, 200)]}, {"attempts": [Attempt("a", 200)] * 65}])
def test_a_value_that_fits_no_column_is_put_aside(changes: dict[str, object]) -> None:
    assert intake.reason_against(MAKER.record(NOW_S, **changes), FACTS) is Reason.BAD_VALUE


def test_a_request_whose_edge_was_lost_costs_nothing() -> None:
    record = MAKER.record(NOW_S, outcome=Outcome.EDGE_LOST, cost_usd="0")
    assert intake.reason_against(record, FACTS) is None


def test_partitions_are_those_of_timely_ids_only() -> None:
    frames = [MAKER.record(NOW_S), MAKER.record(NOW_S - DAY_S), MAKER.record(NOW_S - 99 * DAY_S)]
    days = intake.days_of(frames, FACTS.oldest_s, FACTS.newest_s)
    assert days == {ids.uuid7_day(frame.request_id) for frame in frames[:2]}


def test_an_id_just_before_midnight_belongs_to_the_day_that_ends() -> None:
    midnight_s = NOW_S - NOW_S % DAY_S
    before, after = ids.uuid7(midnight_s - 0.001), ids.uuid7(midnight_s)
    assert (ids.uuid7_day(after) - ids.uuid7_day(before)).days == 1


def test_the_hour_of_a_request_is_the_hour_of_its_id() -> None:
    hour = intake.hour_of(ids.uuid7(NOW_S + 59.9))
    assert (hour.timestamp() % 3_600, hour.timestamp() <= NOW_S + 59.9) == (0, True)


def test_equal_content_has_equal_digests_and_other_content_has_not() -> None:
    record = MAKER.record(NOW_S)
    same = msgspec.json.decode(msgspec.json.encode(record), type=type(record))
    assert intake.body_sha(record) == intake.body_sha(same)
    assert intake.body_sha(record) != intake.body_sha(msgspec.structs.replace(record, http_status=201))


def test_a_sorted_batch_is_decoded() -> None:
    record = MAKER.record(NOW_S)
    decoded = intake.decode(batch(record, MAKER.opening(record.request_id)))
    assert [type(frame).__name__ for frame in decoded.frames] == ["UsageRecord", "UsageOpen"]


def test_an_unsorted_batch_is_refused() -> None:
    early, late = MAKER.record(NOW_S), MAKER.record(NOW_S + 10)
    with pytest.raises(Refusal, match="sorted"):
        intake.decode(msgspec.json.encode(UsageBatch("boot", [late, early])))


def test_more_than_500_frames_are_refused() -> None:
    frames = [MAKER.opening(UUID(int=number)) for number in range(501)]
    with pytest.raises(Refusal, match="at most 500"):
        intake.decode(msgspec.json.encode(UsageBatch("boot", frames)))


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b'{"boot_id":1,"frames":[]}', b'{"boot_id":"b","frames":[{"type":"other"}]}', b"\xff",
    b'{"boot_id":"\xff","frames":[]}', b'{"boot_id":"b","frames":[{"type":"open","request_id":"nonsense"}]}'])
def test_what_is_no_batch_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal, match="no usage batch"):
        intake.decode(body)
