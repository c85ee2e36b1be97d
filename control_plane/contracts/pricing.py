"""Prices and what a request costs: integer tokens times a stored decimal, never rounded.

The edge prints this figure to the client and the control plane books it, so there is one function for both.
"""

from decimal import Decimal
from typing import Annotated, NamedTuple

from pydantic import Field, PlainSerializer

from control_plane.contracts.wire import Wire


def usd_text(amount: Decimal) -> str:
    """An amount as plain digits, no exponent and no trailing zeros: ``0.02002336``."""
    if not amount:
        return "0"
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# An amount in USD: exact in Python, plain digits in a JSON string.
Usd = Annotated[Decimal, PlainSerializer(usd_text, return_type=str, when_used="json")]


class Price(Wire):
    """One immutable version of a model's price, USD per token. Serialised as strings."""

    version: str
    input_usd: Usd = Field(ge=0)
    cached_input_usd: Usd = Field(ge=0)
    output_usd: Usd = Field(ge=0)


class Cost(NamedTuple):
    """What a request costs, in USD, by line."""

    input_usd: Decimal
    cached_input_usd: Decimal
    output_usd: Decimal

    @property
    def total_usd(self) -> Decimal:
        return self.input_usd + self.cached_input_usd + self.output_usd


def rate(price: Price, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> Cost:
    """The exact cost. `cached_tokens` are part of `prompt_tokens`, and reasoning tokens of `completion_tokens`.

    Raises:
        ValueError: a count is negative, or more is cached than was asked.
    """
    if not 0 <= cached_tokens <= prompt_tokens or completion_tokens < 0:
        raise ValueError(f"impossible counts: prompt {prompt_tokens}, cached {cached_tokens}, out {completion_tokens}")
    return Cost((prompt_tokens - cached_tokens) * price.input_usd, cached_tokens * price.cached_input_usd,
                completion_tokens * price.output_usd)
