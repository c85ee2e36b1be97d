"""`POST /edge/v1/money/leases`: an edge borrows money to spend before it is asked for each request.

A lease is a block of a team's or a key's allowance that one boot of one edge may spend. The control plane grants no
more than is left after what was booked and what is lent already, so the sum of open leases is all that can be spent
beyond what it has seen. An edge closes a lease once every request that was paid from it is in usage records that were
shipped; a dead edge's leases stay open until its next boot has shipped what it left (`earlier_boots_shipped`).

Amounts are integer nano-dollars (1e-9 USD), rounded up by whoever asks: they authorise, they are never a bill.
"""

from enum import StrEnum

from pydantic import Field

from control_plane.contracts.keys import LimitScope
from control_plane.contracts.wire import Count, Name, Wire

NANO_USD = 1_000_000_000
MAX_LEASES = 200


class BillingMode(StrEnum):
    """How a team pays: from its balance before it spends, or by invoice afterwards."""

    PREPAID = "prepaid"
    POSTPAID = "postpaid"


class Interval(StrEnum):
    """How often a budget begins anew: at 00:00 UTC, weeks on Monday; the widest last."""

    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    LIFETIME = "lifetime"


class LeaseAsk(Wire):
    """`lease_id` is made by the edge, so that an ask may be repeated: the same id gets the same grant. The grant is
    between `at_least_nusd` and `want_nusd`, or nothing."""

    lease_id: Name
    scope: LimitScope
    scope_id: Name
    want_nusd: Count
    at_least_nusd: Count


class MoneyLeaseRequest(Wire):
    """Closes first, then opens. Safe to repeat."""

    boot_id: Name
    open: list[LeaseAsk] = Field(default=[], max_length=MAX_LEASES)
    close: list[Name] = Field(default=[], max_length=MAX_LEASES)
    earlier_boots_shipped: bool = False


class MoneyRefusalReason(StrEnum):
    """Why nothing was granted."""

    INSUFFICIENT_FUNDS = "insufficient_funds"
    BUDGET_EXCEEDED = "budget_exceeded"


class LeaseGrant(Wire):
    """`granted_nusd` 0: refused, for `reason`; with a budget `interval` (daily, weekly, monthly, lifetime) says which
    and `resets_at_s` (Unix time) when it begins anew. `left_nusd` is what could still be lent after this grant."""

    lease_id: str
    granted_nusd: int
    left_nusd: int
    reason: MoneyRefusalReason | None = None
    interval: Interval | None = None
    resets_at_s: float | None = None


class MoneyLeaseAnswer(Wire):
    """One grant for each ask, in order."""

    grants: list[LeaseGrant]
