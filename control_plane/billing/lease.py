"""How much money an edge is lent. Pure: what is free under each bound of a scope goes in, a grant comes out.

What is left is shared out: a grant is at most a quarter of it, so blocks shrink as a limit nears, down to exactly what
one request needs. Amounts are integer nano-dollars, rounded down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_FLOOR, Decimal

from control_plane.contracts.money import NANO_USD, Interval, LeaseAsk, LeaseGrant, MoneyRefusalReason

SHARES = 4
UNLIMITED_NUSD = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bound:
    """One limit of a scope and what is free under it: not booked and not lent; below nothing where more was spent.

    `interval` is a budget's, null for a balance; `resets_at` when the budget begins anew.
    """

    free_nusd: int
    interval: Interval | None = None
    resets_at: datetime | None = None


class Purse:
    """What may be lent of one scope; each grant leaves less. Without bounds nothing limits it."""

    def __init__(self, bounds: Sequence[Bound]) -> None:
        """`bounds` in the order in which a refusal names them: the balance, then budgets, the widest first."""
        self._bounds = bounds
        self._lent_nusd = 0

    @property
    def left_nusd(self) -> int:
        """What can still be lent, never below nothing."""
        if not self._bounds:
            return UNLIMITED_NUSD
        return max(0, min(bound.free_nusd for bound in self._bounds) - self._lent_nusd)

    def lend(self, ask: LeaseAsk) -> LeaseGrant:
        """A grant between what is needed and what is wanted, or a refusal that says why."""
        need_nusd = max(ask.at_least_nusd, 1)
        short = next((bound for bound in self._bounds if bound.free_nusd - self._lent_nusd < need_nusd), None)
        if short is not None:
            return self._refuse(ask, short)
        share_nusd = self.left_nusd // SHARES
        granted_nusd = max(need_nusd, min(ask.want_nusd, share_nusd))
        self._lent_nusd += granted_nusd
        return LeaseGrant(lease_id=ask.lease_id, granted_nusd=granted_nusd, left_nusd=self.left_nusd)

    def _refuse(self, ask: LeaseAsk, short: Bound) -> LeaseGrant:
        reason = MoneyRefusalReason.BUDGET_EXCEEDED if short.interval else MoneyRefusalReason.INSUFFICIENT_FUNDS
        return LeaseGrant(
            lease_id=ask.lease_id, granted_nusd=0, left_nusd=self.left_nusd, reason=reason, interval=short.interval,
            resets_at_s=short.resets_at and short.resets_at.timestamp())


def nano(amount_usd: Decimal) -> int:
    """Whole nano-dollars, rounded towards less."""
    return int((amount_usd * NANO_USD).to_integral_value(ROUND_FLOOR))


def usd(amount_nusd: int) -> Decimal:
    """The same amount in dollars, exactly."""
    return Decimal(amount_nusd) / NANO_USD
