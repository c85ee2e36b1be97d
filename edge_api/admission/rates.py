"""One rate limit, as this edge spends it: a block taken from Valkey, and this edge's own share while Valkey is away.

A use is counted in the slot that it was taken in; what a request did not use goes back to that slot. So Valkey's sum is
what was used in truth, whenever requests end, and a limit of so many a minute holds for every minute:

    spent in any 60 s <= limit + edges * largest_block(limit)

The second part is blocks that were taken before the minute and spent in it. While Valkey is away each edge lets in its
own share, limit / live edges, by what it has let in itself; what it let in is counted in Valkey afterwards. A wiped
Valkey has forgotten the last minute.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from control_plane.contracts.clock import Clock
from control_plane.contracts.keys import LimitScope
from edge_api.admission.account import Account, Hold, Used
from edge_api.admission.figures import AdmissionFigures
from edge_api.admission.line import Answer, Call, Line
from edge_api.admission.refusals import limit_lines, over_rate, over_whole_limit
from edge_api.admission.scripts import CORRECT, SLOT_MS, TAKE, WINDOW_MS, WINDOW_SLOTS
from edge_api.errors import Refusal

BLOCK_SHARE = 16
BLOCK_S = 4.0
CORRECT_S = 0.2
EAGER_S = 1.0
DENIED_S = 0.25


class RateName(NamedTuple):
    """Which limit. `kind` is `requests` or `tokens`."""

    team_id: str
    scope: LimitScope
    scope_id: str
    model_id: str | None
    kind: str

    @property
    def key(self) -> str:
        """Where it is in Valkey. A team's limits are in one hash slot of a cluster."""
        return f"adm:{{{self.team_id}}}:{self.kind}:{self.scope}:{self.scope_id}:{self.model_id or ''}"

    @property
    def text(self) -> str:
        """How clients are told of it."""
        return f"{self.scope}.{self.kind}_per_minute" + (f" ({self.model_id})" if self.model_id else "")


def largest_block(limit: int) -> int:
    """The most units that an edge holds unspent."""
    return limit // BLOCK_SHARE


def most_in_a_minute(limit: int, edges: int) -> int:
    """The most that all edges together let through in any 60 s while Valkey answers."""
    return limit + edges * largest_block(limit)


def share(limit: int, edges: int) -> int:
    """What one of several edges lets in by itself: its part of the limit, but never nothing."""
    return max(min(1, limit), limit // max(1, edges))


class Rate(Account):
    """Owns this edge's block of one limit. `free` units of the block are unspent, all of slot `slot`."""

    def __init__(self, name: RateName, limit: int, line: Line, clock: Clock, live_edges: Callable[[], int],
                 figures: AdmissionFigures) -> None:
        super().__init__()
        self.name, self.limit = name, limit
        self._line, self._clock, self._live_edges, self._figures = line, clock, live_edges, figures
        self.free = self.slot = 0
        self._block = 0
        self._taken_at_s = self.last_used_s = clock.monotonic_s()
        self._left, self._reset_at_s = limit, self._taken_at_s
        self._denied_until_s, self._denied_wait_ms = 0.0, 0
        self._own: dict[int, int] = {}
        self._owed: dict[int, int] = {}

    @property
    def remaining(self) -> int:
        """What is left of the limit, as far as this edge knows."""
        if self._line.is_up:
            return self._left + self.free
        return share(self.limit, self._live_edges()) - self._own_use(self._line.slot())

    def lines(self) -> bytes:
        """Its `x-ratelimit-*` lines."""
        return limit_lines(self.name.kind, self.limit, self.remaining, self._reset_ms())

    def take_now(self, units: int) -> Hold | None:
        if units <= self.free:
            self.free -= units
            self._own[self.slot] = self._own.get(self.slot, 0) + units
            if self.free < self._block >> 2 and not self.is_asking:
                self.ask()
            return Hold(self, units, self.slot)
        if units > self.limit:
            self._figures.refusals.labels("too_large").inc()
            raise over_whole_limit(self.name.text, self.name.kind, self.limit, units)
        if not self._line.is_up:
            return self._take_alone(units)
        if self._clock.monotonic_s() < self._denied_until_s and units > self.free + self._left:
            raise self._refusal(units, self._left, self._denied_wait_ms)
        return None

    def undo(self, hold: Hold) -> None:
        self._give_back(hold.units, hold.mark)

    def settle(self, hold: Hold, used: Used) -> None:
        if self.name.kind == "tokens":
            self._give_back(hold.units - used.tokens, hold.mark)

    def release(self, hold: Hold, is_settled: bool) -> None:
        if not is_settled and self.name.kind == "tokens":
            self._give_back(hold.units, hold.mark)

    def ask(self) -> None:
        """A block: what the waiting need, and as much again as was used up quickly. The last block's rest goes back
        first if somebody waits, for it may be what is missing."""
        if not self._line.is_up:
            self.serve()
            return
        self.is_asking = True
        now_s = self._clock.monotonic_s()
        quick = now_s - self._taken_at_s < EAGER_S
        head, wanted = self.head(), self.wanted()
        if head is not None:
            self._put_back_block()
            self._block = max(self._block, wanted)
        self._block = min(2 * self._block if quick else self._block // 2, largest_block(self.limit))
        self.correct()
        self._taken_at_s = now_s
        at_least = head.units if head is not None else 0
        self._line.call(Call(TAKE, self.name.key, (self.limit, at_least, wanted + self._block), self._answered))

    def correct(self) -> None:
        """Tells Valkey what was used beyond what was taken, and what was not used."""
        if not self._owed or not self._line.is_up:
            return
        owed, self._owed = self._owed, {}
        first = self._line.slot() - WINDOW_SLOTS
        args = [number for slot, units in owed.items() if units and slot >= first for number in (slot, units)]
        if args:
            self._line.call(Call(CORRECT, self.name.key, args, lambda answer: self._corrected(owed, answer)))

    def tend(self, now_s: float) -> bool:
        """Gives back what lies unused, forgets what no longer counts. False: there is nothing to remember."""
        if self.free and now_s - self._taken_at_s > BLOCK_S:
            self._put_back_block()
        first = self._line.slot() - WINDOW_SLOTS
        for slot in [slot for slot in self._own if slot < first]:
            del self._own[slot]
        for slot in [slot for slot in self._owed if slot < first]:
            del self._owed[slot]
        self.correct()
        return bool(self._own or self._owed or self.free or self.waiting or self.is_asking)

    def put_back(self) -> None:
        """Everything unspent goes back: this edge ends."""
        self._put_back_block()
        self.correct()

    def _answered(self, answer: Answer) -> None:
        if answer is None:
            self.serve()  # the line is down, so each is judged by this edge's own share
            self.is_asking = False
            if self.waiting:
                self.ask()
            return
        granted, slot, self._left, wait_ms, reset_ms, now_ms = answer
        now_s = self._clock.monotonic_s()
        self._line.heard_ms(now_ms)
        self._reset_at_s = now_s + reset_ms / 1000
        if granted:
            if slot != self.slot:
                self._put_back_block()
            self.slot = slot
            self.free += granted
        else:
            self._block //= 2
        if not granted and self.waiting:
            self._denied_until_s = now_s + min(wait_ms / 1000, DENIED_S)
            self._denied_wait_ms = wait_ms
        self.serve()
        self.is_asking = False
        if self.waiting:
            self.ask()
        elif (surplus := self.free - largest_block(self.limit)) > 0:  # somebody who waited has left
            self._owe(self.slot, -surplus)
            self.free -= surplus

    def _take_alone(self, units: int) -> Hold:
        """By this edge's own share of the limit. What is let in is counted in Valkey once it is back."""
        slot = self._line.slot()
        used, part = self._own_use(slot), share(self.limit, self._live_edges())
        if used + units > part:
            oldest = min((at for at, own in self._own.items() if own > 0), default=slot)
            wait_ms = min(WINDOW_MS, max(SLOT_MS, (oldest + WINDOW_SLOTS + 1 - slot) * SLOT_MS))
            raise self._refusal(units, part - used, wait_ms)
        self._own[slot] = self._own.get(slot, 0) + units
        self._owe(slot, units)
        return Hold(self, units, slot)

    def _own_use(self, slot: int) -> int:
        first = slot - WINDOW_SLOTS
        return sum(units for at, units in self._own.items() if at >= first)

    def _give_back(self, units: int, mark: object) -> None:
        """`units` of what was taken in a slot were not used; negative: more was."""
        if not isinstance(mark, int):
            raise TypeError("a rate's hold is marked with its slot")
        if mark in self._own:
            self._own[mark] -= units
        if 0 < units <= self._block - self.free and mark == self.slot:
            self.free += units
        elif units:
            self._owe(mark, -units)

    def _put_back_block(self) -> None:
        if self.free:
            self._owe(self.slot, -self.free)
            self.free = 0

    def _owe(self, slot: int, units: int) -> None:
        if not self._owed and self._line.is_up:
            asyncio.get_running_loop().call_later(CORRECT_S, self.correct)
        self._owed[slot] = self._owed.get(slot, 0) + units
        if units < 0:
            self._denied_until_s = 0.0

    def _corrected(self, owed: dict[int, int], answer: Answer) -> None:
        """Nobody knows whether it was counted: what was used is told again, what was not used may not be."""
        if answer is None:
            for slot, units in owed.items():
                if units > 0:
                    self._owe(slot, units)

    def _reset_ms(self) -> int:
        return max(0, int((self._reset_at_s - self._clock.monotonic_s()) * 1000))

    def _refusal(self, units: int, left: int, wait_ms: int) -> Refusal:
        self._figures.refusals.labels("rate").inc()
        return over_rate(self.name.text, self.name.kind, self.limit, units, left, wait_ms, self._reset_ms())
