"""Usage batches: stored exactly once, whatever is repeated, shuffled or contradicted."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest

from control_plane.contracts import ids
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.topology import PriceDocument
from control_plane.contracts.usage import Attempt, UsageRecord, Verdict
from tests.integration.control_plane.usage.conftest import Metered
from tests.unit.control_plane.usage.frames import batch

STORED, DUPLICATE, CONFLICT = Verdict.STORED, Verdict.DUPLICATE, Verdict.CONFLICT


async def test_a_record_is_stored_with_all_that_it_says(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    assert await metered.ship(record) == [STORED]
    ((day, stored_id, edge_id, cost_usd, attempts, opened_at, finish_reason),) = await metered.rows(
        "SELECT day, id, edge_id, cost_usd, attempts, opened_at, finish_reason FROM usage_record")
    assert (day, stored_id, edge_id) == (ids.uuid7_day(record.request_id), record.request_id, metered.edge.identity)
    assert (cost_usd, attempts) == (
        Decimal("0.000416"), [{"datacenter_id": "us-east-1", "status": 200, "delivered": 0, "failed": False}])
    assert (opened_at.timestamp(), finish_reason) == (pytest.approx(record.opened_at_s, abs=1e-5), "stop")


async def test_a_record_keeps_dialect_session_tier_and_resumes(metered: Metered) -> None:
    await metered.ship(metered.maker.record(
        metered.now_s, dialect="messages", session="s1", service_tier="flex", resumes=2,
        attempts=[Attempt("us-east-1", 200), Attempt("eu-north-1", 200, 17)]))
    assert await metered.rows(
        "SELECT dialect, session, service_tier, resumes, attempts -> 1 ->> 'delivered' FROM usage_record") == [
        ("messages", "s1", "flex", 2, "17")]


async def test_a_record_of_an_older_edge_has_their_defaults(metered: Metered) -> None:
    document = msgspec.json.decode(batch(metered.maker.record(metered.now_s)))
    for name in ("dialect", "session", "service_tier", "resumes"):
        del document["frames"][0][name]
    assert (await metered.post(msgspec.json.encode(document))).json() == {"verdicts": ["stored"]}
    assert await metered.rows("SELECT dialect, session, service_tier, resumes FROM usage_record") == [
        ("chat", "", "default", 0)]


async def test_a_repeated_batch_stores_nothing_new(metered: Metered) -> None:
    frames = [metered.maker.record(metered.now_s - second) for second in range(10)]
    assert await metered.ship(*frames) == [STORED] * 10
    assert await metered.ship(*frames) == [DUPLICATE] * 10
    assert await metered.rows("SELECT count(*) FROM usage_record") == [(10,)]


async def test_three_shuffled_resends_in_other_batches_store_each_record_once(metered: Metered) -> None:
    shuffle = random.Random(7)
    frames = [metered.maker.record(metered.now_s - second) for second in range(300)]
    for _ in range(3):
        shuffle.shuffle(frames)
        await asyncio.gather(*(metered.ship(*frames[start:start + 70]) for start in range(0, 300, 70)))
    assert await metered.rows("SELECT count(*), count(DISTINCT id) FROM usage_record") == [(300, 300)]


async def test_two_edges_that_ship_the_same_records_at_once_store_each_once(metered: Metered) -> None:
    other = await metered.replica.enrolled(IdentityKind.EDGE, "eu-north-1")
    frames = [metered.maker.record(metered.now_s - second / 10) for second in range(400)]
    first, second = await asyncio.gather(metered.ship(*frames), metered.ship(*frames, edge=other))
    assert {frozenset(pair) for pair in zip(first, second, strict=True)} == {frozenset({STORED, DUPLICATE})}
    assert await metered.rows("SELECT count(*) FROM usage_record") == [(400,)]


async def test_a_retry_after_midnight_is_still_a_duplicate(metered: Metered) -> None:
    yesterday_s = metered.now_s - 86_400
    record = metered.maker.record(yesterday_s)
    assert await metered.ship(record) == [STORED]
    assert await metered.ship(record, metered.maker.record(metered.now_s)) == [DUPLICATE, STORED]


async def test_other_content_under_a_stored_id_is_kept_aside_and_changes_nothing(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    await metered.ship(record)
    forged = metered.maker.record(metered.now_s, request_id=record.request_id, completion_tokens=9_999)
    assert await metered.ship(forged) == [CONFLICT]
    assert await metered.ship(forged) == [CONFLICT]
    assert await metered.rows("SELECT completion_tokens FROM usage_record") == [(50,)]
    assert await metered.rows("SELECT reason, frame ->> 'completion_tokens' FROM usage_quarantine") == [
        ("contradiction", "9999")]


async def test_two_contradicting_records_in_one_batch_store_one(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    other = metered.maker.record(metered.now_s, request_id=record.request_id, completion_tokens=51)
    assert sorted(await metered.ship(record, other)) == [CONFLICT, STORED]
    assert await metered.rows("SELECT count(*) FROM usage_record") == [(1,)]


async def test_one_bad_frame_does_not_hold_the_others_up(metered: Metered) -> None:
    good = metered.maker.record(metered.now_s)
    bad = metered.maker.record(metered.now_s + 1, cost_usd="0")
    assert await metered.ship(good, bad) == [STORED, CONFLICT]
    assert await metered.rows("SELECT reason FROM usage_quarantine") == [("wrong_cost",)]


@pytest.mark.parametrize(("changes", "reason"), [
    ({"key_id": "key_of_nobody"}, "unknown_key"),
    ({"team_id": "team_of_nobody"}, "unknown_key"),
    ({"price_version": "pv_0"}, "unknown_price"),
    ({"price_version": "pv\0"}, "bad_value"),
    ({"finish_reason": "\0"}, "bad_value"),
    ({"session": "\0"}, "bad_value"),
    ({"resumes": -1}, "bad_value"),
    ({"attempts": [Attempt("us-east-1", 200, -1)]}, "bad_value"),
    ({"prompt_tokens": 2**63, "cached_tokens": 0}, "bad_value"),
    ({"cached_tokens": 1_001}, "wrong_cost"),
])
async def test_what_cannot_be_billed_is_kept_aside(metered: Metered, changes: dict[str, object], reason: str) -> None:
    assert await metered.ship(metered.maker.record(metered.now_s, **changes)) == [CONFLICT]
    assert await metered.rows("SELECT reason FROM usage_quarantine") == [(reason,)]
    assert await metered.rows("SELECT count(*) FROM usage_record") == [(0,)]


@pytest.mark.parametrize("offset_s", [330.0, -36 * 86_400.0])
async def test_an_id_from_another_time_is_kept_aside(metered: Metered, offset_s: float) -> None:
    assert await metered.ship(metered.maker.record(metered.now_s + offset_s)) == [CONFLICT]
    assert await metered.rows("SELECT reason FROM usage_quarantine") == [("id_time",)]


async def test_a_late_record_gets_the_partition_of_its_own_day(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s - 20 * 86_400)
    assert await metered.ship(record) == [STORED]
    day = ids.uuid7_day(record.request_id)
    assert await metered.rows("SELECT tableoid::regclass::text FROM usage_record") == [(f"usage_record_p{day:%Y%m%d}",)]


async def test_two_edges_that_need_the_same_new_partition_at_once_both_get_it(metered: Metered) -> None:
    other = await metered.replica.enrolled(IdentityKind.EDGE, "eu-north-1")
    frames = [metered.maker.record(metered.now_s - days * 86_400) for days in range(5, 15)]
    verdicts = await asyncio.gather(metered.ship(*frames[::2]), metered.ship(*frames[1::2], edge=other))
    assert verdicts == [[STORED] * 5, [STORED] * 5]


async def test_partitions_of_the_coming_days_are_made_at_start(metered: Metered) -> None:
    names = {name for (name,) in await metered.rows(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'usage_record'::regclass")}
    today = datetime.fromtimestamp(metered.now_s, UTC).date()
    assert {f"usage_record_p{today + timedelta(days=ahead):%Y%m%d}" for ahead in range(4)} <= names
    assert "usage_record_default" in names


async def test_an_opening_is_kept_until_its_record_comes(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    opening = metered.maker.opening(record.request_id)
    assert await metered.ship(opening) == [STORED]
    assert await metered.rows("SELECT id, edge_id FROM usage_open") == [(record.request_id, metered.edge.identity)]
    assert await metered.ship(record) == [STORED]
    assert await metered.rows("SELECT id FROM usage_open") == []


async def test_an_opening_that_comes_again_after_its_record_stays_settled(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    opening = metered.maker.opening(record.request_id)
    assert await metered.ship(opening, record) == [STORED, STORED]
    assert await metered.ship(opening, record) == [DUPLICATE, DUPLICATE]
    assert await metered.rows("SELECT id FROM usage_open") == []


async def test_the_edge_is_who_signed_whatever_the_batch_claims(metered: Metered) -> None:
    document = msgspec.json.decode(batch(metered.maker.record(metered.now_s)))
    document["frames"][0] |= {"edge_id": "edge_of_somebody", "cost_note": "free"}
    answer = await metered.post(msgspec.json.encode(document))
    assert (answer.status_code, answer.json()) == (200, {"verdicts": ["stored"]})
    assert await metered.rows("SELECT edge_id FROM usage_record") == [(metered.edge.identity,)]


async def test_a_revoked_keys_last_requests_are_still_billed(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    await metered.replica.client.delete(
        f"/operator/v1/keys/{record.key_id}", headers=await metered.replica.operator())
    assert await metered.ship(record) == [STORED]


async def test_a_record_is_rated_by_the_version_that_it_names(metered: Metered) -> None:
    await metered.replica.price(PriceDocument(
        version="pv_2", input_usd="0.000001", cached_input_usd="0.0000001", output_usd="0.000003"))
    old = metered.maker.record(metered.now_s)
    new = metered.maker.record(metered.now_s + 1, price_version="pv_2", cost_usd="0.00061")
    assert await metered.ship(old, new) == [STORED, STORED]
    assert await metered.rows("SELECT price_version, cost_usd::text FROM usage_record ORDER BY id") == [
        ("pv_1", "0.000416000000"), ("pv_2", "0.000610000000")]


async def test_an_empty_batch_is_answered_with_nothing(metered: Metered) -> None:
    assert await metered.ship() == []


@pytest.mark.parametrize("body", [b"", b"nonsense", b'{"boot_id":"b"}', b'{"boot_id":"b","frames":{}}'])
async def test_a_signed_body_that_is_no_batch_is_refused_whole(metered: Metered, body: bytes) -> None:
    answer = await metered.post(body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_batch")


async def test_an_unsorted_batch_stores_nothing(metered: Metered) -> None:
    early, late = metered.maker.record(metered.now_s), metered.maker.record(metered.now_s + 1)
    body = msgspec.json.encode({"boot_id": "b", "frames": [late, early]})
    assert (await metered.post(body)).status_code == 400
    assert await metered.rows("SELECT count(*) FROM usage_record") == [(0,)]


async def test_a_full_batch_of_500_is_taken(metered: Metered) -> None:
    frames: list[UsageRecord] = [metered.maker.record(metered.now_s - number / 100) for number in range(500)]
    assert await metered.ship(*frames) == [STORED] * 500
