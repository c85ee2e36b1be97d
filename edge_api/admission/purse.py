"""The money of one team or key that this edge may spend: leases, and what is reserved and spent of each.

Pure bookkeeping in nano-dollars; whoever holds a purse asks for leases and closes them. Of every lease at any time:

    granted = free + reserved + spent

A reservation may be cut out of several leases, oldest first, so that a lease is used up wholly before the next. A lease
that is retired serves no new reservation. It may be closed once nothing is reserved in it and everything that was paid
from it is in usage records that were shipped.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from math import exp

from control_plane.contracts.keys import LimitScope
from edge_api.metering.frames import Position

NOWHERE = Position(0, 0)


class LeaseState(StrEnum):
    """What a lease is good for."""

    OPEN = "open"
    RETIRED = "retired"
    CLOSED = "closed"


TRANSITIONS: dict[LeaseState, frozenset[LeaseState]] = {
    LeaseState.OPEN: frozenset({LeaseState.RETIRED}),
    LeaseState.RETIRED: frozenset({LeaseState.CLOSED}),
    LeaseState.CLOSED: frozenset(),
}


class Lease:
    """One lease. `reservations` counts the open ones that have a part in it; `settled_at` is where the outbox stood
    when the last of them ended."""

    __slots__ = ("free_nusd", "granted_nusd", "lease_id", "reservations", "reserved_nusd", "settled_at", "spent_nusd",
                 "state")

    def __init__(self, lease_id: str, granted_nusd: int) -> None:
        self.lease_id, self.granted_nusd, self.free_nusd = lease_id, granted_nusd, granted_nusd
        self.reserved_nusd = self.spent_nusd = self.reservations = 0
        self.settled_at = NOWHERE
        self.state = LeaseState.OPEN

    def move(self, state: LeaseState) -> None:
        """Goes on to `state`.

        Raises:
            RuntimeError: there is no such way.
        """
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a lease cannot go from {self.state} to {state}")
        self.state = state


class Part:
    """What one reservation has of one lease."""

    __slots__ = ("amount_nusd", "lease")

    def __init__(self, lease: Lease, amount_nusd: int) -> None:
        self.lease, self.amount_nusd = lease, amount_nusd


class Purse:
    """Owns the leases of one scope. `free_nusd` is what the open ones still have; `recent_nusd` what was spent, less of
    it the longer ago it was."""

    RECENT_S = 600.0
    YOUNG_S = 10.0

    def __init__(self, scope: LimitScope, scope_id: str, now_s: float) -> None:
        self.scope, self.scope_id = scope, scope_id
        self.leases: list[Lease] = []
        self.free_nusd = 0
        self.recent_nusd = 0.0
        self.last_used_s = self._decayed_at_s = self._since_s = now_s

    @property
    def leased_nusd(self) -> int:
        """The sum of the leases that are not closed."""
        return sum(lease.granted_nusd for lease in self.leases)

    def add(self, lease_id: str, granted_nusd: int) -> None:
        """A lease was granted."""
        self.leases.append(Lease(lease_id, granted_nusd))
        self.free_nusd += granted_nusd

    def reserve(self, amount_nusd: int) -> tuple[Part, ...] | None:
        """Reserves as much, or nothing."""
        if amount_nusd > self.free_nusd:
            return None
        parts = tuple(self._cut(amount_nusd))
        self.free_nusd -= amount_nusd
        return parts

    def settle(self, parts: tuple[Part, ...], cost_nusd: int, now_s: float, written: Position) -> int:
        """Books what a reservation cost and frees the rest of it. What it cost beyond its reservation is taken from
        what is free; the answer is what not even that covers. `written` is where the outbox stands: the usage record is
        before that."""
        for part in parts:
            paid_nusd = min(part.amount_nusd, cost_nusd)
            cost_nusd -= paid_nusd
            part.lease.spent_nusd += paid_nusd
            part.lease.reserved_nusd -= paid_nusd
            part.amount_nusd -= paid_nusd
            part.lease.settled_at = max(part.lease.settled_at, written)
            self._note(paid_nusd, now_s)
            self._free(part)
        if cost_nusd and (more := self.reserve(min(cost_nusd, self.free_nusd))):
            cost_nusd = self.settle(more, cost_nusd, now_s, written)
            self.end(more)
        return cost_nusd

    def end(self, parts: tuple[Part, ...]) -> None:
        """The reservation is over; what was not settled of it is free again."""
        for part in parts:
            self._free(part)
            part.lease.reservations -= 1

    def retire(self, is_all: bool) -> bool:
        """Retires the leases that are used up, or all in which nothing is reserved. Whether there was any."""
        due = [lease for lease in self.leases if lease.state is LeaseState.OPEN and not lease.reservations
               and (is_all or not lease.free_nusd)]
        for lease in due:
            lease.move(LeaseState.RETIRED)
            self.free_nusd -= lease.free_nusd
        return bool(due)

    def closable(self, shipped: Position) -> Iterator[Lease]:
        """The leases that may be given back."""
        return (lease for lease in self.leases
                if lease.state is LeaseState.RETIRED and not lease.reservations and shipped >= lease.settled_at)

    def is_about_to_close(self) -> bool:
        """Whether a lease only waits for its records to be shipped."""
        return any(lease.state is LeaseState.RETIRED for lease in self.leases)

    def close(self, is_closed: Callable[[Lease], bool]) -> None:
        """Forgets the leases that were given back."""
        for lease in self.leases:
            if is_closed(lease):
                lease.move(LeaseState.CLOSED)
        self.leases = [lease for lease in self.leases if lease.state is not LeaseState.CLOSED]

    def recent(self, now_s: float) -> int:
        """About what is spent in `RECENT_S`. A younger purse takes what it saw for a part of that: else an edge that
        started lately would hold next to nothing when the control plane goes away."""
        self._note(0, now_s)
        age_s = max(now_s - self._since_s, self.YOUNG_S)
        return int(self.recent_nusd / (1 - exp(-age_s / self.RECENT_S)))

    def _cut(self, amount_nusd: int) -> Iterator[Part]:
        for lease in self.leases:
            if lease.state is not LeaseState.OPEN:
                continue
            cut_nusd = min(lease.free_nusd, amount_nusd)
            if cut_nusd:
                lease.free_nusd -= cut_nusd
                lease.reserved_nusd += cut_nusd
                lease.reservations += 1
                amount_nusd -= cut_nusd
                yield Part(lease, cut_nusd)
            if not amount_nusd:
                return

    def _free(self, part: Part) -> None:
        lease, part_nusd = part.lease, part.amount_nusd
        part.amount_nusd = 0
        lease.reserved_nusd -= part_nusd
        lease.free_nusd += part_nusd
        if lease.state is LeaseState.OPEN:
            self.free_nusd += part_nusd

    def _note(self, spent_nusd: int, now_s: float) -> None:
        """What was spent weighs less the longer ago it was: after `RECENT_S` about a third."""
        passed_s = now_s - self._decayed_at_s
        if passed_s > 1:
            self.recent_nusd *= exp(-passed_s / self.RECENT_S)
            self._decayed_at_s = now_s
        self.recent_nusd += spent_nusd
