"""The bank: carries asks for money and leases to give back to the control plane, many scopes in one message.

Asks that come while messages are under way go together with the next. A lease is closed once the outbox was shipped
past the last record that was paid from it; what an earlier boot of this edge borrowed is closed once what that boot
left in the outbox was shipped. Every message may be repeated: leases are known by ids made here.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import httpx
import structlog
from pydantic import ValidationError

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import MAX_LEASES, MoneyLeaseAnswer, MoneyLeaseRequest
from control_plane.contracts.transport import ControlPlaneAway
from edge_api.admission.figures import AdmissionFigures
from edge_api.admission.money import Money
from edge_api.admission.purse import Lease
from edge_api.identity import ControlPlaneLink
from edge_api.metering.frames import Position

PATH = "/edge/v1/money/leases"
DEADLINE_S = 1.8
MAX_FLIGHTS = 4
CLOSE_AGAIN_S = 1.0

log = structlog.get_logger()


class Disowned(Exception):
    """The control plane says that a lease which the message names is not ours to name: it knows us by another identity
    now, or an earlier copy of the message is still at work."""


class Bank:
    """Owns the accounts of money, and the messages under way. `written` and `shipped` say how far the usage outbox goes
    and how much of it the control plane has stored."""

    def __init__(self, link: ControlPlaneLink, boot_id: str, clock: Clock, written: Callable[[], Position],
                 shipped: Callable[[], Position], figures: AdmissionFigures) -> None:
        self._link, self._boot_id, self._clock, self._figures = link, boot_id, clock, figures
        self._written, self._shipped = written, shipped
        self._earlier_end, self._is_earlier_told = written(), False
        self._accounts: dict[tuple[LimitScope, str], Money] = {}
        self._asking: deque[Money] = deque()
        self._closing: set[str] = set()
        self._flights: set[asyncio.Task[None]] = set()
        self._is_due = self._is_away = False
        self._close_at_s = 0.0
        figures.leases.set_function(lambda: sum(len(money.purse.leases) for money in self._accounts.values()))
        figures.leased_nusd.set_function(lambda: sum(money.purse.leased_nusd for money in self._accounts.values()))

    def account(self, scope: LimitScope, scope_id: str) -> Money:
        """The account of a scope's money."""
        money = self._accounts.get((scope, scope_id))
        if money is None:
            money = Money(scope, scope_id, self, self._clock, self._written, self._figures)
            self._accounts[scope, scope_id] = money
        return money

    def ask(self, money: Money) -> None:
        """Hands in an ask; it is carried with the next message."""
        self._asking.append(money)
        if not self._is_due and len(self._flights) < MAX_FLIGHTS:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send_due)

    def ask_later(self, money: Money, after_s: float) -> None:
        """Hands in an ask after a while, with what may be closed by then."""
        self._close_at_s = 0.0
        asyncio.get_running_loop().call_later(after_s, self.ask, money)

    def tend(self, now_s: float) -> bool:
        """Retires and closes leases, forgets accounts that hold nothing. Whether any was forgotten."""
        gone = [key for key, money in self._accounts.items() if not money.tend(now_s)]
        for key in gone:
            del self._accounts[key]
        if now_s >= self._close_at_s and not self._flights and (self._closable() or self._may_tell_earlier()):
            self._send()
        return bool(gone)

    async def aclose(self) -> None:
        """Gives back every lease that can be given back, as far as a moment allows."""
        for money in self._accounts.values():
            money.purse.retire(is_all=True)
        if self._closable():
            self._send()
        while self._flights:
            await asyncio.wait(self._flights)

    def _send_due(self) -> None:
        self._is_due = False
        while self._asking and len(self._flights) < MAX_FLIGHTS:
            self._send()

    def _send(self) -> None:
        asking = [self._asking.popleft() for _ in range(min(len(self._asking), MAX_LEASES))]
        may_close = self._clock.monotonic_s() >= self._close_at_s
        closing = [lease.lease_id for lease in self._closable()] if may_close else []
        self._closing.update(closing)
        request = MoneyLeaseRequest(
            boot_id=self._boot_id, open=[money.lease_ask() for money in asking], close=closing,
            earlier_boots_shipped=self._may_tell_earlier())
        task = asyncio.get_running_loop().create_task(self._fly(request, asking))
        self._flights.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flights.discard(task)
        self._send_due()

    async def _fly(self, request: MoneyLeaseRequest, asking: list[Money]) -> None:
        try:
            answer = await self._post(request)
        except Disowned as refused:
            log.warning("money_leases_disowned", error=str(refused), asks=len(request.open), closes=len(request.close))
            self._let_go(request, asking)
            return
        except ControlPlaneAway as error:
            if not self._is_away:  # the first only: an outage may last for days
                log.warning("money_leases_unanswered", error=str(error)[:200])
            self._is_away = True
            self._closing.difference_update(request.close)
            self._close_at_s = self._clock.monotonic_s() + ids.jitter(CLOSE_AGAIN_S)
            for money in asking:
                money.unanswered()
            return
        if self._is_away:
            log.info("money_leases_answered_again")
        self._is_away = False
        self._is_earlier_told = self._is_earlier_told or request.earlier_boots_shipped
        self._forget(request.close)
        for money, grant in zip(asking, answer.grants, strict=True):
            money.granted(grant)

    def _let_go(self, request: MoneyLeaseRequest, asking: list[Money]) -> None:
        """Without the leases that it named, the message may be heard; without any, the asks need new ids."""
        self._forget(request.close)
        for money in asking:
            if request.close:
                self._asking.append(money)
            else:
                money.pending = None
                money.unanswered()

    def _forget(self, lease_ids: list[str]) -> None:
        closed = set(lease_ids)
        self._closing -= closed
        for money in self._accounts.values() if closed else ():
            money.purse.close(lambda lease: lease.lease_id in closed)

    async def _post(self, request: MoneyLeaseRequest) -> MoneyLeaseAnswer:
        """The answer to a message.

        Raises:
            Disowned: a lease that it names is not ours.
            ControlPlaneAway: nobody answered in a way that can be used.
        """
        try:
            async with asyncio.timeout(DEADLINE_S):
                answer = await self._link.post(PATH, request.model_dump_json().encode(), DEADLINE_S)
        except TimeoutError as error:
            raise ControlPlaneAway("no answer in time") from error
        if answer.status_code == httpx.codes.CONFLICT:
            raise Disowned("HTTP 409")
        if answer.status_code != httpx.codes.OK:
            raise ControlPlaneAway(f"leases were refused with HTTP {answer.status_code}")
        try:
            leases = MoneyLeaseAnswer.model_validate_json(answer.content)
        except ValidationError as error:
            raise ControlPlaneAway(f"an answer that is no MoneyLeaseAnswer: {error.error_count()} faults") from error
        if [grant.lease_id for grant in leases.grants] != [ask.lease_id for ask in request.open]:
            raise ControlPlaneAway("the answer's grants are not those that were asked for")
        return leases

    def _closable(self) -> list[Lease]:
        shipped = self._shipped()
        return [lease for money in self._accounts.values() for lease in money.purse.closable(shipped)
                if lease.lease_id not in self._closing][:MAX_LEASES]

    def _may_tell_earlier(self) -> bool:
        return not self._is_earlier_told and self._shipped() >= self._earlier_end
