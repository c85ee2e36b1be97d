"""Spending money that was leased: one account for each team or key whose money must be leased before it is spent.

Where a purse is empty the bank asks the control plane. A refusal is remembered for `REFUSED_S`, silence for
`AWAY_S`, so that a stampede here is none there. Nobody's money is guessed at: with the control plane away what is
leased is spent, and then the answer is 503, for nobody can say whether it would be 402.
"""

from collections.abc import Callable
from typing import Protocol

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import LeaseAsk, LeaseGrant
from edge_api.admission.account import Account, Hold, Used
from edge_api.admission.figures import AdmissionFigures
from edge_api.admission.purse import Part, Purse
from edge_api.admission.refusals import money_away, no_money
from edge_api.errors import BUDGET_EXCEEDED
from edge_api.metering.frames import Position

REFUSED_S = 1.0
AWAY_S = 1.0
IDLE_S = 60.0
SCARCE_IDLE_S = 2.0
PATIENCE_S = 1.5
SECOND_ASK_S = 0.1
LOW_SHARE = 4
AHEAD = 1.5
MAX_WANT_NUSD = 2**62


class Counter(Protocol):
    """Where asks are handed in: the bank."""

    def ask(self, money: "Money") -> None: ...

    def ask_later(self, money: "Money", after_s: float) -> None: ...


class Money(Account):
    """Owns one purse, and what the control plane last said about it. `pending` is the ask that is under way or was
    never answered: it is asked again with the same lease id, for it may have been granted."""

    def __init__(self, scope: LimitScope, scope_id: str, counter: Counter, clock: Clock,
                 written: Callable[[], Position], figures: AdmissionFigures) -> None:
        super().__init__()
        self.purse = Purse(scope, scope_id, clock.monotonic_s())
        self.pending: LeaseAsk | None = None
        self._counter, self._clock, self._written, self._figures = counter, clock, written, figures
        self._refused: LeaseGrant | None = None
        self._refused_until_s = self._away_until_s = self._refill_at_s = 0.0
        self._low_nusd = self._least_nusd = 0
        self._is_scarce = False

    def take_now(self, units: int) -> Hold | None:
        purse = self.purse
        parts = purse.reserve(units)
        if parts is not None:
            purse.last_used_s = now_s = self._clock.monotonic_s()
            if purse.free_nusd < self._low_nusd and not self.is_asking and now_s > max(
                    self._refill_at_s, self._away_until_s):
                self.ask()
            return Hold(self, units, parts)
        now_s = self._clock.monotonic_s()
        if now_s < self._away_until_s:
            self._figures.refusals.labels("money_away").inc()
            raise money_away()
        refused = self._refused
        if refused is not None and now_s < self._refused_until_s and units > purse.free_nusd + refused.left_nusd:
            refusal = no_money(purse.scope, refused)
            self._figures.refusals.labels("budget" if refusal.fault is BUDGET_EXCEEDED else "funds").inc()
            raise refusal
        return None

    def undo(self, hold: Hold) -> None:
        self.purse.end(_parts(hold))

    def settle(self, hold: Hold, used: Used) -> None:
        overrun_nusd = self.purse.settle(_parts(hold), used.cost_nusd, self._clock.monotonic_s(), self._written())
        if overrun_nusd:
            self._figures.overrun_nusd.inc(overrun_nusd)

    def release(self, hold: Hold, is_settled: bool) -> None:
        self.purse.end(_parts(hold))
        self._refused = None  # what was refused may be had now: some of what was reserved is free

    def ask(self) -> None:
        self.is_asking = True
        self._counter.ask(self)

    def lease_ask(self) -> LeaseAsk:
        """What to ask for: about ten minutes of what is spent and half as much again, so that ten are always left when
        the control plane goes away; and no less than those who wait need at worst."""
        if self.pending is None:
            head, free_nusd = self.head(), self.purse.free_nusd
            at_least = max(1, head.units - free_nusd) if head is not None else 1
            ahead_nusd = int(AHEAD * self.purse.recent(self._clock.monotonic_s()))
            want = max(at_least, 2 * self.wanted() - free_nusd, ahead_nusd - free_nusd)
            self.pending = LeaseAsk(
                lease_id=ids.new_id("lease"), scope=self.purse.scope, scope_id=self.purse.scope_id,
                want_nusd=min(want, MAX_WANT_NUSD), at_least_nusd=min(at_least, MAX_WANT_NUSD))
        return self.pending

    def granted(self, grant: LeaseGrant) -> None:
        """The control plane answered."""
        wanted_nusd = 0 if self.pending is None else self.pending.want_nusd
        self._is_scarce = grant.granted_nusd < wanted_nusd
        self.pending, now_s = None, self._clock.monotonic_s()
        self._away_until_s = 0.0
        if grant.granted_nusd > 0:
            self._figures.lease_asks.labels("granted").inc()
            self.purse.add(grant.lease_id, grant.granted_nusd)
            self._least_nusd = grant.granted_nusd // LOW_SHARE
            self._look_ahead(now_s)
            self._refused = None
            self._go_on()
            return
        self._figures.lease_asks.labels("refused").inc()
        self._refill_at_s = now_s + ids.jitter(REFUSED_S)
        if self.head() is None:
            self.is_asking = False
            return
        self.purse.retire(is_all=True)  # what is left is too little for whoever waits, and may do together with more
        if self._may_wait(now_s):
            self._counter.ask_later(self, SECOND_ASK_S)
            return
        self._refused, self._refused_until_s = grant, self._refill_at_s
        self._go_on()

    def unanswered(self) -> None:
        """The control plane is away."""
        self._figures.lease_asks.labels("away").inc()
        self._away_until_s = self._clock.monotonic_s() + ids.jitter(AWAY_S)
        self._go_on()

    def tend(self, now_s: float) -> bool:
        """Retires leases that are used up, or idle for long; where less was granted than was wanted others may need it,
        and it goes back soon. False: there is nothing to remember."""
        self._look_ahead(now_s)
        idle_s = now_s - self.purse.last_used_s
        self.purse.retire(is_all=idle_s > (SCARCE_IDLE_S if self._is_scarce else IDLE_S))
        return bool(idle_s <= IDLE_S or self.purse.leases or self.waiting or self.is_asking or self.pending)

    def _look_ahead(self, now_s: float) -> None:
        """Below what more is asked for: about ten minutes of what is spent, where there is enough for everybody."""
        ahead_nusd = 0 if self._is_scarce else self.purse.recent(now_s)
        self._low_nusd = max(self._least_nusd, ahead_nusd)

    def _go_on(self) -> None:
        self.serve()
        self.is_asking = False
        if self.head() is not None:
            self.ask()

    def _may_wait(self, now_s: float) -> bool:
        """A lease that was spent counts twice, as lent and as booked, until it is closed: no reason to say 402 yet."""
        head = self.head()
        return head is not None and self.purse.is_about_to_close() and now_s - head.since_s < PATIENCE_S


def _parts(hold: Hold) -> tuple[Part, ...]:
    if not isinstance(hold.mark, tuple):
        raise TypeError("a hold of money is marked with its parts")
    return hold.mark
