"""What a usage record must cost. Pure: the record and the price of its version go in, the exact amount comes out."""

from decimal import Decimal, InvalidOperation

from control_plane.contracts.pricing import Price, rate
from control_plane.contracts.usage import Outcome, UsageRecord

UNBILLED = frozenset({Outcome.EDGE_LOST})


def cost_of(record: UsageRecord, price: Price) -> Decimal:
    """The exact cost in USD; nothing when the edge itself was lost.

    Raises:
        ValueError: the record's counts are impossible.
    """
    cost = rate(price, record.prompt_tokens, record.cached_tokens, record.completion_tokens)
    if not 0 <= record.reasoning_tokens <= record.completion_tokens:
        raise ValueError(f"impossible counts: reasoning {record.reasoning_tokens}, out {record.completion_tokens}")
    return Decimal(0) if record.outcome in UNBILLED else cost.total_usd


def is_cost_right(record: UsageRecord, price: Price) -> bool:
    """Whether the edge's own figure is the exact cost."""
    try:
        return Decimal(record.cost_usd) == cost_of(record, price)
    except (ValueError, InvalidOperation):
        return False
