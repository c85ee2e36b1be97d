"""What a request was let in with: holds of every limit and purse that binds it, given back by the grant, once."""

from control_plane.contracts.clock import Clock
from edge_api.admission.account import Hold, Used
from edge_api.admission.figures import AdmissionFigures


class Unlimited:
    """The grant of a request that nothing limits; one for all of them."""

    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers = b""

    def settle(self, tokens: int, cost_nusd: int) -> None:
        """Nobody counts."""

    def release(self) -> None:
        """Nothing is held."""


UNLIMITED = Unlimited()


class OpenGrants:
    """All grants that are not released, oldest first."""

    def __init__(self, clock: Clock, longest_s: float, figures: AdmissionFigures) -> None:
        self._clock, self._longest_s, self._figures = clock, longest_s, figures
        self._open: dict[LimitedGrant, float] = {}
        figures.grants.set_function(lambda: len(self._open))

    def begin(self, holds: list[Hold], headers: bytes) -> "LimitedGrant":
        """A grant with these holds."""
        grant = LimitedGrant(self, holds, headers)
        self._open[grant] = self._clock.monotonic_s()
        return grant

    def end(self, grant: "LimitedGrant") -> bool:
        """The grant is released. False: it was before."""
        return self._open.pop(grant, None) is not None

    def reap(self) -> None:
        """Releases what is open for longer than any request takes: whoever had it forgot it, or has a client that reads
        as slowly as it may. Then it is used all the same, so nothing of it is free again."""
        before_s = self._clock.monotonic_s() - self._longest_s
        for grant in [grant for grant, since_s in self._open.items() if since_s < before_s]:
            self._figures.reaped.inc()
            grant.use_up()
            grant.release()


class LimitedGrant:
    """The grant of a request that limits or money bind. `settle` and `release` do nothing the second time."""

    __slots__ = ("_holds", "_is_settled", "_open", "headers")

    def __init__(self, open_grants: OpenGrants, holds: list[Hold], headers: bytes) -> None:
        self._open, self._holds, self.headers = open_grants, holds, headers
        self._is_settled = False

    def settle(self, tokens: int, cost_nusd: int) -> None:
        """What the request used."""
        if self._is_settled or not self._holds:
            return
        self._is_settled = True
        used = Used(tokens, cost_nusd)
        for hold in self._holds:
            hold.account.settle(hold, used)

    def use_up(self) -> None:
        """All that was reserved counts as used."""
        if not self._is_settled:
            self._is_settled = True
            for hold in self._holds:
                hold.account.settle(hold, Used(hold.units, hold.units))

    def release(self) -> None:
        """The request is over."""
        if not self._open.end(self):
            return
        holds, self._holds = self._holds, []
        for hold in holds:
            hold.account.release(hold, self._is_settled)
