"""How limits are told to clients."""

import msgspec
import pytest

from control_plane.contracts.money import LeaseGrant, MoneyRefusalReason
from edge_api.admission.refusals import (
    go_duration,
    limit_lines,
    money_away,
    no_money,
    over_concurrency,
    over_rate,
    over_whole_limit,
)
from edge_api.errors import Refusal


def headers(refused: Refusal) -> dict[bytes, bytes]:
    return dict(refused.headers())


@pytest.mark.parametrize(("milliseconds", "text"), [
    (-5, "0ms"), (0, "0ms"), (12, "12ms"), (999, "999ms"), (1000, "1s"), (1500, "1.5s"), (59_050, "59.05s"),
    (60_000, "1m0s"), (360_000, "6m0s"), (61_001, "1m1.001s"), (3_600_000, "1h0m0s"), (7_325_000, "2h2m5s")])
def test_durations_are_those_of_go(milliseconds: int, text: str) -> None:
    assert go_duration(milliseconds) == text


def test_a_limit_has_three_lines() -> None:
    assert limit_lines("tokens", 1000, 12, 1500) == (
        b"x-ratelimit-limit-tokens: 1000\r\nx-ratelimit-remaining-tokens: 12\r\nx-ratelimit-reset-tokens: 1.5s\r\n")


def test_less_than_nothing_is_never_left() -> None:
    assert b"x-ratelimit-remaining-requests: 0\r\n" in limit_lines("requests", 10, -3, 0)


def test_a_rate_refusal_names_the_limit_and_carries_its_lines() -> None:
    refused = over_rate("key.requests_per_minute", "requests", 10, 1, 0, 3_000, 2_000)
    body = msgspec.json.decode(refused.body())["error"]
    assert (refused.status, body["code"], body["metadata"]) == (
        429, "rate_limit_exceeded", {"limit": "key.requests_per_minute"})
    assert headers(refused)[b"x-ratelimit-limit-requests"] == b"10"
    assert headers(refused)[b"x-should-retry"] == b"true"


def test_nobody_is_told_to_come_back_before_it_fits() -> None:
    waits = {int(headers(over_rate("x", "requests", 10, 1, 0, 30_000, 0))[b"retry-after-ms"]) for _ in range(200)}
    assert min(waits) >= 30_000
    assert max(waits) <= 40_000
    assert len(waits) > 50


def test_nobody_is_told_to_wait_longer_than_clients_do() -> None:
    assert int(headers(over_rate("x", "requests", 10, 1, 0, 900_000, 0))[b"retry-after"]) == 120


def test_what_never_fits_is_not_to_be_repeated() -> None:
    refused = over_whole_limit("team.tokens_per_minute", "tokens", 100, 5000)
    assert refused.status == 429
    assert headers(refused) == {b"x-should-retry": b"false"}
    assert "5000 tokens" in refused.message
    assert "100" in refused.message


def test_a_full_concurrency_limit_is_to_be_tried_again_soon() -> None:
    refused = over_concurrency("team.concurrency", 7)
    assert (refused.status, refused.metadata) == (429, {"limit": "team.concurrency"})
    assert int(headers(refused)[b"retry-after-ms"]) < 2_000


def test_a_lifetime_budget_never_begins_anew() -> None:
    refused = no_money("key", LeaseGrant(lease_id="l", granted_nusd=0, left_nusd=0,
                                         reason=MoneyRefusalReason.BUDGET_EXCEEDED))
    assert refused.metadata == {"scope": "key", "interval": "lifetime"}
    assert headers(refused) == {b"x-should-retry": b"false"}


def test_a_refusal_without_a_reason_is_one_of_funds() -> None:
    refused = no_money("team", LeaseGrant(lease_id="l", granted_nusd=0, left_nusd=0))
    assert refused.fault.code == "insufficient_funds"


def test_money_that_nobody_can_vouch_for_is_to_be_asked_for_again() -> None:
    assert money_away().status == 503
    assert headers(money_away())[b"x-should-retry"] == b"true"
