"""How much a request may use at worst, before anybody has counted: tokens and nano-dollars, in integers only.

Every bound is an upper one. A token is at least one byte of text, and a prompt and its answer fit the model's context.
"""

from decimal import ROUND_CEILING, Decimal
from typing import NamedTuple

from control_plane.contracts.money import NANO_USD
from control_plane.contracts.pricing import Price

PICO_PER_USD = 1_000_000_000_000
PICO_PER_NANO = PICO_PER_USD // NANO_USD


class Tariff(NamedTuple):
    """A price in pico-dollars a token (1e-12 USD: what a stored price can say), made once for each price."""

    input_pusd: int
    cached_input_pusd: int
    output_pusd: int


def tariff(price: Price) -> Tariff:
    """The tariff of a price; what is finer than a pico-dollar is rounded up."""
    return Tariff(_pico(price.input_usd), _pico(price.cached_input_usd), _pico(price.output_usd))


def prompt_bound(body_bytes: int, context_window: int) -> int:
    """The most tokens that a prompt within a body of that length can have."""
    return min(body_bytes, context_window)


def completion_bound(max_tokens: int | None, max_output_tokens: int, choices: int = 1) -> int:
    """The most tokens that an answer can have: `choices` answers, each of what was asked for (null: nothing was) and of
    what the model may write."""
    return choices * (max_output_tokens if max_tokens is None else min(max_tokens, max_output_tokens))


def worst_cost_nusd(rates: Tariff, prompt_tokens: int, completion_tokens: int) -> int:
    """What that many tokens cost at most, in nano-dollars, rounded up."""
    input_pusd = max(rates.input_pusd, rates.cached_input_pusd)
    return -(-(prompt_tokens * input_pusd + completion_tokens * rates.output_pusd) // PICO_PER_NANO)


def cost_nusd(rates: Tariff, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> int:
    """What a request cost, in nano-dollars, rounded up: what is given to `Grant.settle`, never what is billed."""
    pusd = ((prompt_tokens - cached_tokens) * rates.input_pusd + cached_tokens * rates.cached_input_pusd
            + completion_tokens * rates.output_pusd)
    return -(-pusd // PICO_PER_NANO)


def _pico(amount_usd: Decimal) -> int:
    return int((amount_usd * PICO_PER_USD).to_integral_value(rounding=ROUND_CEILING))
