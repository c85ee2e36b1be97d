"""Rating: integer times decimal, exact."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.billing.rating import cost_of, is_cost_right
from control_plane.contracts.usage import Outcome
from tests.unit.control_plane.usage.frames import PRICE, Maker

MAKER = Maker("team_1", "key_1")
NOW_S = 1_800_000_000.0


def test_cached_and_uncached_input_and_output_have_their_own_price() -> None:
    record = MAKER.record(NOW_S, prompt_tokens=146_012, cached_tokens=139_776, completion_tokens=412)
    assert cost_of(record, PRICE) == Decimal("0.02002336")


@given(prompt=st.integers(0, 10**9), cached=st.integers(0, 10**9), out=st.integers(0, 10**9))
def test_the_cost_is_exact_for_any_counts(prompt: int, cached: int, out: int) -> None:
    cached = min(prompt, cached)
    record = MAKER.record(
        NOW_S, prompt_tokens=prompt, cached_tokens=cached, completion_tokens=out, reasoning_tokens=0)
    pico_usd = (prompt - cached) * 600_000 + cached * 110_000 + out * 2_200_000
    assert cost_of(record, PRICE) * 10**12 == pico_usd


@given(st.integers(1, 10**6))
def test_a_cost_that_is_off_by_any_amount_is_wrong(pico_usd: int) -> None:
    record = MAKER.record(NOW_S)
    off = str(Decimal(record.cost_usd) + Decimal(pico_usd).scaleb(-12))
    assert is_cost_right(record, PRICE)
    assert not is_cost_right(MAKER.record(NOW_S, cost_usd=off), PRICE)


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.CLIENT_GONE, Outcome.UPSTREAM_LOST])
def test_what_was_delivered_is_billed_however_it_ended(outcome: Outcome) -> None:
    assert cost_of(MAKER.record(NOW_S, outcome=outcome), PRICE) == Decimal("0.000416")


def test_a_lost_edge_bills_nothing() -> None:
    assert cost_of(MAKER.record(NOW_S, outcome=Outcome.EDGE_LOST), PRICE) == 0


def test_impossible_counts_have_no_cost() -> None:
    with pytest.raises(ValueError, match="impossible"):
        cost_of(MAKER.record(NOW_S, reasoning_tokens=51), PRICE)
