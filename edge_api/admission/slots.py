"""One concurrency limit, as this edge spends it: slots held in Valkey under this edge's name, while it says so.

An edge tells Valkey how many slots it holds, all of them at once, so a lost or repeated message does no harm: the next
one is right again. It says so every `RENEW_S`; what is not repeated within `HELD_S` is free, so a dead edge blocks
nobody for long. While there is room an edge keeps a few free slots; near the limit it keeps none, and gives each back
at the moment at which its request ends.

While Valkey is away each edge lets in its own share, limit / live edges. A wiped Valkey knows again within `RENEW_S`.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from control_plane.contracts.clock import Clock
from control_plane.contracts.keys import LimitScope
from edge_api.admission.account import Account, Hold, Used
from edge_api.admission.figures import AdmissionFigures
from edge_api.admission.line import Answer, Call, Line
from edge_api.admission.rates import share
from edge_api.admission.refusals import over_concurrency, over_whole_limit
from edge_api.admission.scripts import HOLD

HELD_S = 12.0
RENEW_S = 3.0
SECOND_TRY_S = 0.01


class SlotName(NamedTuple):
    """Which limit."""

    team_id: str
    scope: LimitScope
    scope_id: str
    model_id: str | None

    @property
    def key(self) -> str:
        """Where it is in Valkey."""
        return f"adm:{{{self.team_id}}}:open:{self.scope}:{self.scope_id}:{self.model_id or ''}"

    @property
    def text(self) -> str:
        """How clients are told of it."""
        return f"{self.scope}.concurrency" + (f" ({self.model_id})" if self.model_id else "")


class Slots(Account):
    """Owns this edge's slots of one limit: `held` of them are its own, `used` are taken by open requests."""

    def __init__(self, name: SlotName, limit: int, edge: str, line: Line, clock: Clock,
                 live_edges: Callable[[], int], figures: AdmissionFigures) -> None:
        super().__init__()
        self.name, self.limit = name, limit
        self._edge, self._line, self._clock, self._live_edges, self._figures = edge, line, clock, live_edges, figures
        self.held = self.used = 0
        self._room = limit
        self._sent = 0
        self._said_at_s = self.last_used_s = clock.monotonic_s()
        self._is_unsaid = self._is_denied = False

    def take_now(self, units: int) -> Hold | None:
        if self.used < self.held or (not self._line.is_up and self.used < share(self.limit, self._live_edges())):
            self.used += 1
            return Hold(self, 1, None)
        if self.limit < 1:
            self._figures.refusals.labels("too_large").inc()
            raise over_whole_limit(self.name.text, "request", self.limit, 1)
        if self._is_denied or not self._line.is_up:
            self._figures.refusals.labels("concurrency").inc()
            raise over_concurrency(self.name.text, self.limit)
        return None

    def undo(self, hold: Hold) -> None:
        self.release(hold, False)

    def settle(self, hold: Hold, used: Used) -> None:
        """A slot is free when the request is over, whatever it used."""

    def release(self, hold: Hold, is_settled: bool) -> None:
        self.used -= 1
        if self.waiting:
            self.serve()
        if self.held - self.used > self._spare():
            self.held = max(self.used, self.held - 1)
            self._say()

    def ask(self) -> None:
        """Asks for a slot for everybody who waits."""
        if not self._line.is_up:
            self.serve()
            return
        self._send(self.wanted(), self._spare())

    def tend(self, now_s: float) -> bool:
        """Says again what is held, and gives back what is not needed. False: there is nothing to say any more."""
        is_due = now_s - self._said_at_s >= RENEW_S
        needed = max(self.used, min(self.held, self.used + (self._spare() if self.used or not is_due else 0)))
        if needed < self.held or (is_due and (self.held or self._sent)):
            self.held = needed
            self._say()
        return bool(self.held or self.waiting or self.is_asking or self._sent)

    def again(self) -> None:
        """Valkey is back: it is told who is here."""
        self.held = self.used
        self._say()

    def put_back(self) -> None:
        """This edge ends: it holds nothing any more."""
        self.held = self.used = 0
        self._say()

    def _say(self) -> None:
        if not self._line.is_up:
            return
        if self.is_asking:
            self._is_unsaid = True
        else:
            self._send(0, 0)

    def _send(self, wanted: int, spare: int) -> None:
        self.is_asking, self._is_unsaid = True, False
        self.held = max(self.held, self.used)
        self._sent, self._said_at_s = self.held, self._clock.monotonic_s()
        self._line.call(Call(
            HOLD, self.name.key, (self._edge, self.limit, self.held, wanted, spare, round(HELD_S * 1000)),
            self._answered))

    def _answered(self, answer: Answer) -> None:
        if answer is None:
            self.serve()
            self.is_asking = False
            if self.waiting:
                self.ask()
            return
        total, self._room = answer
        self.held += total - self._sent  # what was given back in the meantime stays given back
        self._sent = total
        self.serve()
        self.is_asking = False
        if (head := self.head()) is None:
            if self._is_unsaid:
                self._say()
        elif self._clock.monotonic_s() - head.since_s < SECOND_TRY_S and not self._room:
            self.is_asking = True  # somebody elsewhere may be giving one back at this moment
            asyncio.get_running_loop().call_later(SECOND_TRY_S, self._try_again)
        elif self._room:
            self.ask()
        else:
            self._refuse()

    def _try_again(self) -> None:
        self.is_asking = False
        self.serve()
        if self.head() is not None:
            self.ask()
        elif self._is_unsaid:
            self._say()

    def _refuse(self) -> None:
        """No slot is free anywhere: that holds for all who wait now."""
        self._is_denied = True
        self.serve()
        self._is_denied = False
        if self._is_unsaid:
            self._say()

    def _spare(self) -> int:
        """How many free slots may be kept: fewer the less is left for others."""
        return min(max(1, self.used // 4), self._room // 8)
