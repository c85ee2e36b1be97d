"""Rows of the billing slice as operators see them. Pure."""

from datetime import datetime

from control_plane.billing.budget import NARROWEST_FIRST, resets_at, windows
from control_plane.billing.lease import usd
from control_plane.billing.models import Credit, MoneyLease
from control_plane.billing.standing import ScopeKey, Standing
from control_plane.contracts.billing import BudgetView, CreditView, MoneyLeaseView, MoneyView
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import BillingMode, Interval


def credit(row: Credit) -> CreditView:
    return CreditView(id=row.id, team_id=row.team_id, amount_usd=row.amount_usd, reason=row.reason, actor=row.actor,
                      created_at=row.created_at)


def budget(key: ScopeKey, interval: Interval, standing: Standing, now: datetime) -> BudgetView:
    return BudgetView(
        scope=key[0], scope_id=key[1], interval=interval, limit_usd=standing.limits_usd[interval],
        spent_usd=standing.spent(interval), resets_at=resets_at(interval, windows(now)[interval]))


def money(key: ScopeKey, team_id: str, standing: Standing, now: datetime) -> MoneyView:
    is_prepaid = standing.mode is BillingMode.PREPAID
    return MoneyView(
        scope=key[0], scope_id=key[1], team_id=team_id, mode=standing.mode,
        balance_usd=standing.balance_usd if is_prepaid else None, overdraft_usd=standing.overdraft_usd,
        spent_usd=standing.spent(Interval.LIFETIME), lent_usd=usd(standing.lent_nusd),
        open_leases=standing.open_leases,
        budgets=[budget(key, interval, standing, now) for interval in NARROWEST_FIRST
                 if interval in standing.limits_usd])


def lease(row: MoneyLease) -> MoneyLeaseView:
    return MoneyLeaseView(
        id=row.id, edge_id=row.edge_id, boot_id=row.boot_id, scope=row.scope or LimitScope.TEAM,
        scope_id=row.scope_id or "", granted_usd=usd(row.granted_nusd), opened_at=row.opened_at)
