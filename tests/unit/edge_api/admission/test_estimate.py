"""Upper bounds in integers, and costs that are never below the exact figure."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.money import NANO_USD
from control_plane.contracts.pricing import Price, rate
from edge_api.admission.estimate import completion_bound, cost_nusd, prompt_bound, tariff, worst_cost_nusd
from tests.unit.edge_api.builders import PRICE

TOKENS = st.integers(0, 2_000_000)
USD = st.decimals(0, 1, places=12)


def test_a_token_is_at_least_a_byte() -> None:
    assert prompt_bound(body_bytes=600, context_window=202_752) == 600


def test_a_prompt_fits_the_context() -> None:
    assert prompt_bound(body_bytes=600_000, context_window=202_752) == 202_752


def test_an_answer_is_as_long_as_was_asked_at_most() -> None:
    assert completion_bound(max_tokens=100, max_output_tokens=131_072) == 100


def test_an_answer_of_no_asked_length_is_as_long_as_the_model_may_write() -> None:
    assert completion_bound(max_tokens=None, max_output_tokens=131_072) == 131_072


def test_several_choices_are_several_answers() -> None:
    assert completion_bound(max_tokens=100, max_output_tokens=131_072, choices=3) == 300


def test_a_cost_is_that_of_its_price() -> None:
    assert cost_nusd(tariff(PRICE), prompt_tokens=146_012, cached_tokens=139_776, completion_tokens=412) == 20_023_360


def test_the_worst_case_reads_nothing_from_a_cache() -> None:
    assert worst_cost_nusd(tariff(PRICE), prompt_tokens=1000, completion_tokens=10) == 1000 * 600 + 10 * 2200


def test_a_dearer_cache_is_the_worst_case() -> None:
    dear = Price(version="pv_2", input_usd=Decimal("0.000001"), cached_input_usd=Decimal("0.000002"),
                 output_usd=Decimal(0))
    assert worst_cost_nusd(tariff(dear), prompt_tokens=1000, completion_tokens=0) == 2_000_000


def test_less_than_a_nano_dollar_is_one() -> None:
    cheap = Price(version="pv_3", input_usd=Decimal("0.000000000001"), cached_input_usd=Decimal(0),
                  output_usd=Decimal(0))
    assert cost_nusd(tariff(cheap), prompt_tokens=1, cached_tokens=0, completion_tokens=0) == 1


@given(TOKENS, TOKENS, USD, USD, USD, st.floats(0, 1))
def test_what_is_reserved_is_never_less_than_what_is_billed(
        prompt: int, completion: int, input_usd: Decimal, cached_usd: Decimal, output_usd: Decimal,
        cached_share: float) -> None:
    price = Price(version="pv", input_usd=input_usd, cached_input_usd=cached_usd, output_usd=output_usd)
    cached = int(prompt * cached_share)
    billed_nusd = rate(price, prompt, cached, completion).total_usd * NANO_USD
    settled = cost_nusd(tariff(price), prompt, cached, completion)
    assert 0 <= settled - billed_nusd < 1
    assert worst_cost_nusd(tariff(price), prompt, completion) >= settled
