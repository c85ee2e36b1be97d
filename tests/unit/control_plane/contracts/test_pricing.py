"""What a request costs, to the last decimal."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.money import NANO_USD
from control_plane.contracts.pricing import Price, rate, units_text, usd_text

PRICE = Price(version="pv_1", input_usd=Decimal("0.0000006"), cached_input_usd=Decimal("0.00000011"),
              output_usd=Decimal("0.0000022"))
counts = st.integers(0, 10**9)
amounts = st.decimals(0, 10**6, allow_nan=False, allow_infinity=False) | st.sampled_from(
    [Decimal("1E-12"), Decimal("3E+2"), Decimal("0E-30"), Decimal("1.000000000000000000000000000000000001")])


def test_the_published_example_costs_exactly_what_it_says() -> None:
    cost = rate(PRICE, prompt_tokens=146_012, cached_tokens=139_776, completion_tokens=412)
    assert (cost.input_usd, cost.cached_input_usd, cost.output_usd) == (
        Decimal("0.0037416"), Decimal("0.01537536"), Decimal("0.0009064"))
    assert usd_text(cost.total_usd) == "0.02002336"


def test_cached_tokens_are_not_billed_twice() -> None:
    cost = rate(PRICE, prompt_tokens=262_960, cached_tokens=257_955, completion_tokens=0)
    assert cost.total_usd == 5_005 * PRICE.input_usd + 257_955 * PRICE.cached_input_usd


@given(counts, counts, counts)
def test_rating_is_never_negative_and_additive(fresh: int, cached: int, out: int) -> None:
    whole = rate(PRICE, fresh + cached, cached, out).total_usd
    parts = sum(rate(PRICE, *part).total_usd for part in ((fresh, 0, 0), (cached, cached, 0), (0, 0, out)))
    assert whole == parts >= 0


@given(amounts, amounts, amounts, counts, counts, counts)
def test_rating_is_what_fractions_say_whatever_the_price(
        fresh_usd: Decimal, cached_usd: Decimal, output_usd: Decimal, fresh: int, cached: int, out: int) -> None:
    price = Price(version="x", input_usd=fresh_usd, cached_input_usd=cached_usd, output_usd=output_usd)
    cost = rate(price, fresh + cached, cached, out)
    exact = [fresh * Fraction(fresh_usd), cached * Fraction(cached_usd), out * Fraction(output_usd)]
    assert [Fraction(usd) for usd in (cost.input_usd, cost.cached_input_usd, cost.output_usd)] == exact
    assert Fraction(cost.total_usd) == sum(exact)


@given(st.integers(0, 10**30), st.integers(0, 30))
def test_both_ways_to_write_an_amount_write_the_same(units: int, digits: int) -> None:
    assert units_text(units, digits) == usd_text(Decimal(f"{units}E-{digits}"))


@given(amounts, counts)
def test_what_is_taken_from_a_lease_is_never_less_than_the_cost_nor_a_nano_dollar_more(
        output_usd: Decimal, out: int) -> None:
    cost = rate(Price(version="x", input_usd=Decimal(0), cached_input_usd=Decimal(0), output_usd=output_usd), 0, 0, out)
    exact = out * Fraction(output_usd) * NANO_USD
    assert exact <= cost.total_nusd < exact + 1
    assert cost.total_text == usd_text(cost.total_usd)


def test_reckoning_in_units_leaves_a_price_equal_to_itself() -> None:
    same = Price.model_validate_json(PRICE.model_dump_json())
    assert same.units == (8, 60, 11, 220)
    assert same == PRICE
    assert same.model_dump() == PRICE.model_dump()


@pytest.mark.parametrize("impossible", [(-1, 0, 0), (1, 2, 0), (1, -1, 0), (1, 0, -1)])
def test_impossible_counts_are_refused(impossible: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="impossible counts"):
        rate(PRICE, *impossible)


@pytest.mark.parametrize(("amount", "text"), [
    ("0", "0"), ("0E-12", "0"), ("0.020023360000", "0.02002336"), ("1E-12", "0.000000000001"),
    ("100", "100"), ("1E+2", "100"),
])
def test_amounts_are_plain_digits(amount: str, text: str) -> None:
    assert usd_text(Decimal(amount)) == text


def test_a_price_travels_as_plain_digits_in_strings() -> None:
    assert '"input_usd":"0.0000006","cached_input_usd":"0.00000011"' in PRICE.model_dump_json()
    assert Price.model_validate_json(PRICE.model_dump_json()) == PRICE


def test_a_negative_price_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        Price(version="x", input_usd=Decimal(-1), cached_input_usd=Decimal(0), output_usd=Decimal(0))
