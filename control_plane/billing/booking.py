"""What usage records cost, summed by team and by key for every interval. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from control_plane.billing.budget import window_start
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import Interval
from control_plane.contracts.pricing import usd_text


@dataclass(frozen=True, slots=True)
class Charge:
    """What one record costs. `day` is the one inside its request id: it decides the windows, whenever it arrives."""

    team_id: str
    key_id: str
    day: date
    cost_usd: Decimal


def sums(charges: Iterable[Charge]) -> list[dict[str, str]]:
    """What to add to each row of `spend`; free requests add nothing."""
    days: dict[tuple[LimitScope, str, str, date], Decimal] = defaultdict(Decimal)
    for charge in charges:
        days[LimitScope.TEAM, charge.team_id, charge.team_id, charge.day] += charge.cost_usd
        days[LimitScope.KEY, charge.key_id, charge.team_id, charge.day] += charge.cost_usd
    spent: dict[tuple[str, ...], Decimal] = defaultdict(Decimal)
    for (scope, scope_id, team_id, day), cost_usd in days.items():
        if cost_usd:
            for interval in Interval:
                spent[scope, scope_id, team_id, interval, window_start(interval, day).isoformat()] += cost_usd
    names = ("scope", "scope_id", "team_id", "interval", "window_start")
    return [dict(zip(names, key, strict=True), spent_usd=usd_text(total_usd)) for key, total_usd in spent.items()]
