"""Balances and what is free of them."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from control_plane.billing.budget import windows
from control_plane.billing.lease import Bound
from control_plane.billing.standing import Standing
from control_plane.contracts.money import BillingMode, Interval

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
TOMORROW = datetime(2026, 12, 1, tzinfo=UTC)
PREPAID = Standing(
    mode=BillingMode.PREPAID, credited_usd=Decimal(10), spent_usd={Interval.LIFETIME: Decimal(4)},
    lent_nusd=2_000_000_000)


def test_nothing_binds_a_postpaid_team_without_budgets() -> None:
    assert Standing(spent_usd={Interval.LIFETIME: Decimal(4)}).bounds(windows(NOW)) == []


def test_a_prepaid_balance_is_what_was_credited_less_what_was_spent() -> None:
    assert PREPAID.balance_usd == Decimal(6)


def test_the_balance_and_the_overdraft_less_what_is_lent_are_free() -> None:
    assert replace(PREPAID, overdraft_usd=Decimal(1)).bounds(windows(NOW)) == [Bound(5_000_000_000)]


def test_what_was_spent_before_the_team_was_prepaid_is_not_taken_from_its_balance() -> None:
    assert replace(PREPAID, counted_from_usd=Decimal(3)).balance_usd == Decimal(9)


def test_what_credits_paid_before_stays_paid_while_postpaid() -> None:
    postpaid = replace(PREPAID, mode=BillingMode.POSTPAID, consumed_usd=Decimal(1), counted_from_usd=Decimal(2))
    assert (postpaid.used_usd, postpaid.balance_usd) == (Decimal(1), Decimal(9))


def test_a_balance_may_be_below_nothing() -> None:
    assert replace(PREPAID, credited_usd=Decimal(1)).bounds(windows(NOW)) == [Bound(-5_000_000_000)]


def test_budgets_bind_from_the_widest_to_the_narrowest_after_the_balance() -> None:
    standing = replace(PREPAID, limits_usd={Interval.DAILY: Decimal(3), Interval.LIFETIME: Decimal(100)},
                       spent_usd={Interval.LIFETIME: Decimal(4), Interval.DAILY: Decimal("0.5")})
    assert standing.bounds(windows(NOW)) == [
        Bound(4_000_000_000), Bound(94_000_000_000, Interval.LIFETIME),
        Bound(500_000_000, Interval.DAILY, TOMORROW)]


def test_what_is_left_of_a_budget_is_never_below_nothing() -> None:
    standing = Standing(limits_usd={Interval.DAILY: Decimal(3)}, spent_usd={Interval.DAILY: Decimal(4)})
    assert standing.left_usd(Interval.DAILY) == 0
