"""What operators read and write of money: credits, how a team pays, budgets, leases.

Money is a string of exact decimals, in USD.
"""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import BillingMode, Interval
from control_plane.contracts.pricing import Usd
from control_plane.contracts.problem import PRINTABLE
from control_plane.contracts.wire import Document, Wire

MAX_USD = 1_000_000_000

Reason = Annotated[str, Field(min_length=1, max_length=500, pattern=PRINTABLE)]
Limit = Annotated[Usd, Field(ge=0, le=MAX_USD, decimal_places=12)]


class CreditRequest(Document):
    """Money for a team; below nothing it takes some back. The header `Idempotency-Key` makes a repeat answer the first
    credit again."""

    amount_usd: Annotated[Usd, Field(ge=-MAX_USD, le=MAX_USD, decimal_places=12)]
    reason: Reason


class CreditView(Wire):
    """A credit; it never changes."""

    id: str
    team_id: str
    amount_usd: Usd
    reason: str
    actor: str
    created_at: datetime


class BillingRequest(Document):
    """How a team pays. A prepaid one may spend its balance and `overdraft_usd` beyond it."""

    mode: BillingMode
    overdraft_usd: Limit = Decimal(0)


class BudgetRequest(Document):
    """The most that may be spent in an interval."""

    limit_usd: Limit


class BudgetView(Wire):
    """A budget and what of its current window is spent; `resets_at` is null for a lifetime."""

    scope: LimitScope
    scope_id: str
    interval: Interval
    limit_usd: Usd
    spent_usd: Usd
    resets_at: datetime | None


class MoneyView(Wire):
    """How the money of one limited team or key stands. `balance_usd` is null unless the team is prepaid. `lent_usd` is
    what edges hold in `open_leases`: no more than that can be spent beyond what was booked."""

    scope: LimitScope
    scope_id: str
    team_id: str
    mode: BillingMode
    balance_usd: Usd | None
    overdraft_usd: Usd
    spent_usd: Usd
    lent_usd: Usd
    open_leases: int
    budgets: list[BudgetView]


class MoneyLeaseView(Wire):
    """An open lease: what one boot of one edge may spend."""

    id: str
    edge_id: str
    boot_id: str
    scope: LimitScope
    scope_id: str
    granted_usd: Usd
    opened_at: datetime


class ReleaseRequest(Document):
    """Why a lease is closed without its edge. `force` also while the edge lives."""

    reason: Reason
    force: bool = False


class RecountView(Wire):
    """How much of a team's spend was counted wrong: what the records say, less what was booked, over its lifetime."""

    team_id: str
    spent_usd: Usd
    corrected_usd: Usd
