"""One scope's money at one moment, and what of it is free. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from control_plane.billing.budget import NARROWEST_FIRST, resets_at
from control_plane.billing.lease import Bound, nano
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import BillingMode, Interval

ScopeKey = tuple[LimitScope, str]
NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Standing:
    """`spent_usd` is what was booked in the window of each interval that holds this moment, `limits_usd` the budgets;
    `lent_nusd` are the open leases. `consumed_usd` is what credits paid before the mode was set last, and
    `counted_from_usd` what had been spent in all by then."""

    mode: BillingMode = BillingMode.POSTPAID
    overdraft_usd: Decimal = NOTHING
    consumed_usd: Decimal = NOTHING
    counted_from_usd: Decimal = NOTHING
    credited_usd: Decimal = NOTHING
    lent_nusd: int = 0
    open_leases: int = 0
    limits_usd: Mapping[Interval, Decimal] = field(default_factory=dict)
    spent_usd: Mapping[Interval, Decimal] = field(default_factory=dict)

    @property
    def used_usd(self) -> Decimal:
        """What credits have paid so far."""
        if self.mode is BillingMode.POSTPAID:
            return self.consumed_usd
        return self.consumed_usd + self.spent(Interval.LIFETIME) - self.counted_from_usd

    @property
    def balance_usd(self) -> Decimal:
        """Credits that are not used up; below nothing where the overdraft is in use."""
        return self.credited_usd - self.used_usd

    def spent(self, interval: Interval) -> Decimal:
        return self.spent_usd.get(interval, NOTHING)

    def left_usd(self, interval: Interval) -> Decimal:
        """What is left of a budget, never below nothing."""
        return max(NOTHING, self.limits_usd[interval] - self.spent(interval))

    def bounds(self, windows: Mapping[Interval, datetime]) -> list[Bound]:
        """All that limits what may be lent: the balance, then the budgets, the widest first."""
        bounds = []
        if self.mode is BillingMode.PREPAID:
            bounds.append(Bound(nano(self.balance_usd + self.overdraft_usd) - self.lent_nusd))
        for interval in reversed(NARROWEST_FIRST):
            if interval in self.limits_usd:
                free_nusd = nano(self.limits_usd[interval] - self.spent(interval)) - self.lent_nusd
                bounds.append(Bound(free_nusd, interval, resets_at(interval, windows[interval])))
        return bounds
