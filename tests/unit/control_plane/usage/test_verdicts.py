"""The verdict on each frame of a batch."""

import msgspec
import pytest

from control_plane.contracts import ids
from control_plane.contracts.usage import UsageRecord, Verdict
from control_plane.usage.intake import body_sha
from control_plane.usage.verdicts import Ledger
from tests.unit.control_plane.usage.frames import Maker

MAKER = Maker("team_1", "key_1")
NOW_S = 1_800_000_000.0


def ledger_with(record: UsageRecord, *, is_new: bool) -> Ledger:
    ledger = Ledger()
    ledger.records[record.request_id] = body_sha(record)
    if is_new:
        ledger.new_records.add(record.request_id)
    return ledger


def test_a_new_record_is_stored() -> None:
    record = MAKER.record(NOW_S)
    assert ledger_with(record, is_new=True).verdict(record) is Verdict.STORED


def test_a_record_that_was_stored_before_is_a_duplicate() -> None:
    record = MAKER.record(NOW_S)
    assert ledger_with(record, is_new=False).verdict(record) is Verdict.DUPLICATE


def test_the_second_of_two_equal_records_in_a_batch_is_a_duplicate() -> None:
    record = MAKER.record(NOW_S)
    ledger = ledger_with(record, is_new=True)
    assert [ledger.verdict(record), ledger.verdict(record)] == [Verdict.STORED, Verdict.DUPLICATE]


@pytest.mark.parametrize("is_new", [True, False])
def test_other_content_under_a_stored_id_is_a_conflict(is_new: bool) -> None:
    record = MAKER.record(NOW_S)
    other = msgspec.structs.replace(record, finish_reason="length")
    assert ledger_with(record, is_new=is_new).verdict(other) is Verdict.CONFLICT


def test_an_opening_is_stored_beside_the_record_that_settles_it() -> None:
    record = MAKER.record(NOW_S)
    ledger = ledger_with(record, is_new=True)
    verdicts = [ledger.verdict(MAKER.opening(record.request_id)), ledger.verdict(record)]
    assert verdicts == [Verdict.STORED, Verdict.STORED]


def test_an_opening_after_its_record_is_a_duplicate() -> None:
    record = MAKER.record(NOW_S)
    ledger = ledger_with(record, is_new=False)
    assert ledger.verdict(MAKER.opening(record.request_id)) is Verdict.DUPLICATE


def test_an_opening_with_other_content_is_a_conflict() -> None:
    opening = MAKER.opening(ids.uuid7(NOW_S))
    ledger = Ledger()
    ledger.openings[opening.request_id] = body_sha(opening)
    other = msgspec.structs.replace(opening, price_version="pv_2")
    assert (ledger.verdict(opening), ledger.verdict(other)) == (Verdict.DUPLICATE, Verdict.CONFLICT)
