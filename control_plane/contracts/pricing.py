"""Prices and what a request costs: integer tokens times a stored decimal, never rounded.

The edge prints this figure to the client and the control plane books it, so there is one function for both. It reckons
in whole units of a power of ten, fine enough for all three prices of a model: exact as decimals are, at the cost of
integers.
"""

from decimal import Decimal
from functools import cached_property
from typing import Annotated, NamedTuple

from pydantic import Field, PlainSerializer

from control_plane.contracts.money import NANO_USD
from control_plane.contracts.wire import Wire


def usd_text(amount: Decimal) -> str:
    """An amount as plain digits, no exponent and no trailing zeros: ``0.02002336``."""
    if not amount:
        return "0"
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# An amount in USD: exact in Python, plain digits in a JSON string.
Usd = Annotated[Decimal, PlainSerializer(usd_text, return_type=str, when_used="json")]


class Units(NamedTuple):
    """A price as whole units of 10 ** -digits USD a token."""

    digits: int
    input: int
    cached_input: int
    output: int


class Price(Wire):
    """One immutable version of a model's price, USD per token. Serialised as strings."""

    version: str
    input_usd: Usd = Field(ge=0)
    cached_input_usd: Usd = Field(ge=0)
    output_usd: Usd = Field(ge=0)

    @cached_property
    def units(self) -> Units:
        """Reckoned once for each price."""
        amounts = (self.input_usd, self.cached_input_usd, self.output_usd)
        digits = max(0, *(-int(amount.as_tuple().exponent) for amount in amounts))
        return Units(digits, *(_units(amount, digits) for amount in amounts))


class Cost(NamedTuple):
    """What a request costs by line, in whole units of 10 ** -digits USD."""

    input: int
    cached_input: int
    output: int
    digits: int

    @property
    def total_text(self) -> str:
        """As `usd_text` of the total, for a fraction of what a decimal costs."""
        return units_text(self.input + self.cached_input + self.output, self.digits)

    @property
    def total_nusd(self) -> int:
        """Nano-dollars, rounded up: what was spent of a lease, never what is billed."""
        units_a_usd: int = 10 ** self.digits
        return -(-(self.input + self.cached_input + self.output) * NANO_USD // units_a_usd)

    @property
    def input_usd(self) -> Decimal:
        return _usd(self.input, self.digits)

    @property
    def cached_input_usd(self) -> Decimal:
        return _usd(self.cached_input, self.digits)

    @property
    def output_usd(self) -> Decimal:
        return _usd(self.output, self.digits)

    @property
    def total_usd(self) -> Decimal:
        return _usd(self.input + self.cached_input + self.output, self.digits)


def rate(price: Price, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> Cost:
    """The exact cost. `cached_tokens` are part of `prompt_tokens`, and reasoning tokens of `completion_tokens`.

    Raises:
        ValueError: a count is negative, or more is cached than was asked.
    """
    if not 0 <= cached_tokens <= prompt_tokens or completion_tokens < 0:
        raise ValueError(f"impossible counts: prompt {prompt_tokens}, cached {cached_tokens}, out {completion_tokens}")
    digits, a_token, a_cached, an_output = price.units
    return Cost((prompt_tokens - cached_tokens) * a_token, cached_tokens * a_cached, completion_tokens * an_output,
                digits)


def units_text(units: int, digits: int) -> str:
    """As `usd_text`, of units of 10 ** -digits USD."""
    if not units:
        return "0"
    figures = str(units)
    point = len(figures) - digits
    if point <= 0:
        return f"0.{'0' * -point}{figures}".rstrip("0")
    part = figures[point:].rstrip("0")
    return f"{figures[:point]}.{part}" if part else figures[:point]


def _units(amount: Decimal, digits: int) -> int:
    _, figures, exponent = amount.as_tuple()
    scale: int = 10 ** (digits + int(exponent))
    return int("".join(map(str, figures))) * scale


def _usd(units: int, digits: int) -> Decimal:
    """The text of a number is the one way to a Decimal that never rounds."""
    return Decimal(f"{units}E-{digits}")
