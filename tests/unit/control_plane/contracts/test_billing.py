"""What operators may say about money."""

from decimal import Decimal

import pytest
from pydantic import ValidationError

from control_plane.contracts.billing import BillingRequest, BudgetRequest, CreditRequest, ReleaseRequest
from control_plane.contracts.money import BillingMode, Interval, LeaseAsk, LeaseGrant, MoneyLeaseRequest


def test_an_amount_is_read_exactly_and_written_as_plain_digits() -> None:
    asked = CreditRequest.model_validate_json('{"amount_usd":"0.100000000001","reason":"x"}')
    assert asked.amount_usd == Decimal("0.100000000001")
    assert asked.model_dump_json() == '{"amount_usd":"0.100000000001","reason":"x"}'


@pytest.mark.parametrize("amount", ["1000000001", "-1000000001", "0.0000000000001", "NaN", "-Infinity", "", "$5"])
def test_an_amount_that_no_column_keeps_is_refused(amount: str) -> None:
    with pytest.raises(ValidationError):
        CreditRequest(amount_usd=amount, reason="x")


@pytest.mark.parametrize("limit", ["-0.01", "NaN", "1e12"])
def test_a_limit_is_never_below_nothing(limit: str) -> None:
    with pytest.raises(ValidationError):
        BudgetRequest(limit_usd=limit)


def test_a_budget_of_nothing_is_one() -> None:
    assert BudgetRequest(limit_usd="0").limit_usd == 0


def test_a_team_has_no_overdraft_unless_it_is_named() -> None:
    assert BillingRequest(mode=BillingMode.PREPAID).overdraft_usd == 0


@pytest.mark.parametrize("reason", ["", "a\x1b[31m", "x" * 501])
def test_a_reason_is_what_a_terminal_may_show(reason: str) -> None:
    with pytest.raises(ValidationError):
        ReleaseRequest(reason=reason)


def test_intervals_are_listed_from_the_narrowest_to_the_widest() -> None:
    assert list(Interval) == ["daily", "weekly", "monthly", "lifetime"]


def test_a_message_holds_a_bounded_number_of_leases() -> None:
    with pytest.raises(ValidationError):
        MoneyLeaseRequest(boot_id="b", close=["lease"] * 201)


@pytest.mark.parametrize("amount", [-1, 2**63])
def test_an_ask_is_for_an_amount_that_a_database_keeps(amount: int) -> None:
    with pytest.raises(ValidationError):
        LeaseAsk(lease_id="l", scope="team", scope_id="t", want_nusd=amount, at_least_nusd=0)


def test_an_edge_of_an_older_release_reads_a_grant_with_more_in_it() -> None:
    body = '{"lease_id":"l","granted_nusd":1,"left_nusd":2,"interval":"daily","price_version":"pv_9"}'
    assert LeaseGrant.model_validate_json(body).interval is Interval.DAILY
