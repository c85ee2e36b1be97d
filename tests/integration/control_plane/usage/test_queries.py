"""Sums and pages of usage: exact, at once, and only of the time asked for."""

from decimal import Decimal
from typing import Any

import pytest

from control_plane.contracts.clock import utc
from control_plane.contracts.operator import GenerationView, Page, UsageRow, UsageSummary
from tests.integration.control_plane.usage.conftest import Metered
from tests.unit.control_plane.usage.frames import Maker


async def summary(metered: Metered, **params: Any) -> UsageSummary:
    answer = await metered.replica.client.get(
        "/operator/v1/usage", params=params, headers=await metered.replica.operator())
    assert answer.status_code == 200, answer.text
    return UsageSummary.model_validate_json(answer.content)


async def test_a_record_is_in_the_sums_as_soon_as_it_is_shipped(metered: Metered) -> None:
    await metered.ship(metered.maker.record(metered.now_s))
    (row,) = (await summary(metered)).rows
    assert row == UsageRow(model="sim/glm-5.3", requests=1, prompt_tokens=1_000, cached_tokens=600,
                           completion_tokens=50, cost_usd=Decimal("0.000416"))


async def test_without_usage_the_total_is_zero(metered: Metered) -> None:
    found = await summary(metered)
    assert (found.rows, found.total.requests, found.total.cost_usd) == ([], 0, 0)


async def test_money_is_text_in_json(metered: Metered) -> None:
    await metered.ship(metered.maker.record(metered.now_s))
    answer = await metered.replica.client.get("/operator/v1/usage", headers=await metered.replica.operator())
    assert Decimal(answer.json()["total"]["cost_usd"]) == Decimal("0.000416")
    assert isinstance(answer.json()["total"]["cost_usd"], str)


async def test_sums_of_many_tiny_costs_are_exact(metered: Metered) -> None:
    tiny = {"prompt_tokens": 1, "cached_tokens": 1, "completion_tokens": 0, "reasoning_tokens": 0}
    await metered.ship(*(metered.maker.record(metered.now_s - number / 100, **tiny) for number in range(333)))
    assert (await summary(metered)).total.cost_usd == Decimal("0.00000011") * 333


async def test_usage_is_grouped_by_what_is_asked(metered: Metered) -> None:
    await metered.ship(
        metered.maker.record(metered.now_s), metered.maker.record(metered.now_s + 1),
        metered.maker.record(metered.now_s + 2, datacenter_id="eu-north-1"))
    found = await summary(metered, group_by=["datacenter", "key"])
    assert [(row.datacenter, row.key, row.requests, row.model) for row in found.rows] == [
        ("us-east-1", metered.maker.key_id, 2, None), ("eu-north-1", metered.maker.key_id, 1, None)]
    assert found.total.requests == 3


@pytest.mark.parametrize("path", ["/operator/v1/usage", "/api/v1/teams/acme/usage"])
async def test_only_the_dearest_groups_are_listed_and_all_are_summed(metered: Metered, path: str) -> None:
    async def ship(numbers: range) -> None:
        await metered.ship(*(metered.maker.record(
            metered.now_s, datacenter_id=f"dc-{number}", completion_tokens=50 + number) for number in numbers))

    async def seen() -> UsageSummary:
        answer = await metered.replica.client.get(
            path, params={"group_by": "datacenter"}, headers=await metered.replica.operator())
        return UsageSummary.model_validate_json(answer.content)

    await ship(range(1, 501))
    await ship(range(501, 1_001))
    whole = await seen()
    assert (len(whole.rows), whole.truncated) == (1_000, False)
    await ship(range(1))
    cut = await seen()
    assert (len(cut.rows), cut.truncated, cut.total.requests) == (1_000, True, 1_001)
    assert cut.rows == whole.rows
    assert cut.rows[0].datacenter == "dc-1000"


async def test_only_the_time_asked_for_is_summed_across_days(metered: Metered) -> None:
    now_s = metered.now_s
    await metered.ship(*(metered.maker.record(now_s - days * 86_400) for days in range(5)))
    found = await summary(
        metered, start=utc(now_s - 3.5 * 86_400).isoformat(), end=utc(now_s - 0.5 * 86_400).isoformat())
    assert found.total.requests == 3


@pytest.mark.parametrize("by", ["id", "slug"])
async def test_one_teams_usage_leaves_the_others_out(metered: Metered, by: str) -> None:
    other = await metered.replica.team("other")
    theirs = Maker(other.id, (await metered.replica.key(other.id)).id)
    await metered.ship(metered.maker.record(metered.now_s), theirs.record(metered.now_s), theirs.record(metered.now_s))
    assert (await summary(metered, team=getattr(other, by))).total.requests == 2


@pytest.mark.parametrize("params", [
    {"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, {"start": "2026-01-01T00:00:00"},
    {"start": "2020-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}])
async def test_a_time_without_sense_is_refused(metered: Metered, params: dict[str, str]) -> None:
    answer = await metered.replica.client.get(
        "/operator/v1/usage", params=params, headers=await metered.replica.operator())
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_window")


async def test_an_unknown_group_or_team_is_refused(metered: Metered) -> None:
    headers = await metered.replica.operator()
    assert (await metered.replica.client.get("/operator/v1/usage?group_by=colour", headers=headers)).status_code == 422
    assert (await metered.replica.client.get("/operator/v1/usage?team=nobody", headers=headers)).status_code == 404


async def test_generations_are_paged_the_newest_first_across_days(metered: Metered) -> None:
    frames = [metered.maker.record(metered.now_s - number * 30_000) for number in range(7)]
    await metered.ship(*frames)
    headers, seen, cursor = await metered.replica.operator(), [], None
    while True:
        params = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        answer = await metered.replica.client.get("/operator/v1/generations", params=params, headers=headers)
        page = Page[GenerationView].model_validate_json(answer.content)
        seen += [generation.request_id for generation in page.data]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [str(frame.request_id) for frame in frames]


async def test_a_generation_says_what_a_request_used(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    await metered.ship(record)
    answer = await metered.replica.client.get("/operator/v1/generations", headers=await metered.replica.operator())
    (seen,) = Page[GenerationView].model_validate_json(answer.content).data
    assert (seen.request_id, seen.key_id, seen.outcome, seen.attempts) == (
        str(record.request_id), record.key_id, "completed", 1)
    assert (seen.cost_usd, seen.ttft_ms, seen.duration_ms) == (Decimal("0.000416"), 40.25, 812.5)


@pytest.mark.parametrize("cursor", ["nonsense", "ffffffff-ffff-ffff-ffff-ffffffffffff"])
async def test_an_invented_cursor_is_refused(metered: Metered, cursor: str) -> None:
    answer = await metered.replica.client.get(
        "/operator/v1/generations", params={"cursor": cursor}, headers=await metered.replica.operator())
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor")
