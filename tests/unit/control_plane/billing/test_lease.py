"""How much of what is left one ask gets."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.billing.lease import UNLIMITED_NUSD, Bound, Purse, nano, usd
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import Interval, LeaseAsk, MoneyRefusalReason

MIDNIGHT = datetime(2026, 12, 1, tzinfo=UTC)
amounts = st.integers(min_value=0, max_value=10**12)


def ask(want_nusd: int, at_least_nusd: int = 0) -> LeaseAsk:
    return LeaseAsk(lease_id="lease_1", scope=LimitScope.TEAM, scope_id="team_1", want_nusd=want_nusd,
                    at_least_nusd=at_least_nusd)


@pytest.mark.parametrize(("free", "want", "at_least", "granted"), [
    (1_000, 100, 0, 100),      # ample: what is wanted
    (1_000, 900, 0, 250),      # a quarter of what is left
    (1_000, 900, 400, 400),    # one request's worst case, though it is more than a quarter
    (1_000, 900, 1_000, 1_000),
    (3, 900, 0, 1),            # nearly nothing is still something
    (1_000, 10, 400, 400),     # more is needed than wanted
    (1_000, 0, 0, 1),
])
def test_a_grant_lies_between_what_is_needed_and_a_share(free: int, want: int, at_least: int, granted: int) -> None:
    grant = Purse([Bound(free)]).lend(ask(want, at_least))
    assert (grant.granted_nusd, grant.left_nusd, grant.reason) == (granted, free - granted, None)


def test_without_bounds_all_that_is_wanted_is_granted() -> None:
    grant = Purse([]).lend(ask(10**15))
    assert (grant.granted_nusd, grant.left_nusd) == (10**15, UNLIMITED_NUSD)


def test_the_tightest_bound_decides_the_share() -> None:
    assert Purse([Bound(1_000), Bound(400, Interval.DAILY)]).lend(ask(900)).granted_nusd == 100


def test_what_does_not_fit_is_refused_though_something_is_left() -> None:
    grant = Purse([Bound(300)]).lend(ask(900, 301))
    assert (grant.granted_nusd, grant.left_nusd, grant.reason) == (0, 300, MoneyRefusalReason.INSUFFICIENT_FUNDS)


def test_a_refusal_names_the_first_bound_that_is_too_small() -> None:
    bounds = [Bound(500), Bound(90, Interval.MONTHLY, MIDNIGHT), Bound(10, Interval.DAILY, MIDNIGHT)]
    grant = Purse(bounds).lend(ask(900, 100))
    assert (grant.reason, grant.interval, grant.resets_at_s) == (
        MoneyRefusalReason.BUDGET_EXCEEDED, Interval.MONTHLY, MIDNIGHT.timestamp())


@pytest.mark.parametrize("free", [0, -1, -10**12])
def test_nothing_is_lent_where_nothing_is_left(free: int) -> None:
    grant = Purse([Bound(free)]).lend(ask(1))
    assert (grant.granted_nusd, grant.left_nusd) == (0, 0)


def test_blocks_shrink_and_never_grow_again() -> None:
    purse = Purse([Bound(1_000_000)])
    granted = [purse.lend(ask(10**9)).granted_nusd for _ in range(30)]
    assert granted == sorted(granted, reverse=True)
    assert granted[:3] == [250_000, 187_500, 140_625]


@given(st.lists(amounts, min_size=1, max_size=4), st.lists(st.tuples(amounts, amounts), max_size=30))
def test_all_grants_together_never_exceed_what_is_free(free: list[int], asks: list[tuple[int, int]]) -> None:
    purse = Purse([Bound(amount) for amount in free])
    granted = [(purse.lend(ask(want, at_least)), at_least) for want, at_least in asks]
    assert sum(grant.granted_nusd for grant, _ in granted) <= min(free)
    assert all(grant.granted_nusd >= at_least for grant, at_least in granted if grant.reason is None)


@pytest.mark.parametrize(("amount", "nusd"), [
    ("1", 10**9), ("0.0000000019", 1), ("-0.0000000001", -1), ("0.000000000999", 0)])
def test_dollars_are_rounded_towards_less(amount: str, nusd: int) -> None:
    assert nano(Decimal(amount)) == nusd


def test_nano_dollars_are_exact_dollars() -> None:
    assert usd(123_456_789_012) == Decimal("123.456789012")
