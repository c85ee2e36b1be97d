"""The gate: which accounts bind a request, and letting it in when each of them gives what it needs.

Nothing is held while somebody else is waited for in a way that could block: an account answers every ask within its own
bound, yes or no. If one says no, what the others gave goes back as if it had never been taken.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

from control_plane.contracts.clock import Clock
from control_plane.contracts.keys import LimitScope, Principal, RateLimit
from edge_api.admission.account import Account, Hold
from edge_api.admission.bank import Bank
from edge_api.admission.figures import AdmissionFigures
from edge_api.admission.grants import UNLIMITED, OpenGrants
from edge_api.admission.line import Line
from edge_api.admission.money import Money
from edge_api.admission.rates import Rate, RateName
from edge_api.admission.refusals import money_away
from edge_api.admission.slots import SlotName, Slots
from edge_api.errors import Refusal
from edge_api.hot.services import Grant, Need

TEND_S = 1.0
BANK_TEND_S = 0.25
TEND_PIECE = 500
LIMITS_WAIT_S = 0.2
MONEY_WAIT_S = 2.0
MAX_PLANS = 20_000


Needs = list[tuple[Account, int]]


class Plan(NamedTuple):
    """What binds the requests of one key for one model."""

    principal: Principal
    requests: tuple[Rate, ...]
    tokens: tuple[Rate, ...]
    slots: tuple[Slots, ...]
    money: tuple[Money, ...]


class Gate:
    """Implements `Admission`. Owns the accounts of limits; `edge` is this edge's name in Valkey: what an earlier boot
    held under it is overwritten."""

    def __init__(self, line: Line, bank: Bank, clock: Clock, edge: str, live_edges: Callable[[], int],
                 open_grants: OpenGrants, figures: AdmissionFigures) -> None:
        self._line, self._bank, self._clock, self._edge = line, bank, clock, edge
        self._live_edges, self._open, self._figures = live_edges, open_grants, figures
        self._rates: dict[RateName, Rate] = {}
        self._slots: dict[SlotName, Slots] = {}
        self._plans: dict[tuple[str, str], Plan] = {}
        line.on_up.append(self._valkey_is_back)

    def admit_now(self, need: Need) -> Grant | None:
        """The grant, if what this edge holds suffices; none: `admit` must be asked.

        Raises:
            Refusal: it is certain that it may not be let in.
        """
        principal = need.principal
        if not principal.limits and not principal.money_scopes:
            return UNLIMITED
        plan = self._plan(need)
        holds: list[Hold] = []
        try:
            for account, units in _limits(plan, need) + _money(plan, need):
                hold = account.take_now(units)
                if hold is None:
                    _undo(holds)
                    return None
                holds.append(hold)
        except Refusal:
            _undo(holds)
            raise
        return self._open.begin(holds, _lines(plan))

    async def admit(self, need: Need) -> Grant:
        """As `admit_now`, asking for more where it has to: 50 ms for a silent Valkey, at most `LIMITS_WAIT_S`
        for a slow one, at most `MONEY_WAIT_S` for money.

        Raises:
            Refusal: 402, 429 or 503, saying which limit and when to try again.
        """
        granted = self.admit_now(need)
        if granted is not None:
            return granted
        holds = await self._take_limits(need)
        plan = self._plan(need)
        try:
            holds += await self._take_all(_money(plan, need), MONEY_WAIT_S)
        except TimeoutError as error:
            _undo(holds)
            self._figures.refusals.labels("money_away").inc()
            raise money_away() from error
        except BaseException:  # refused, or the client is gone: what is held goes back, whatever ends this
            _undo(holds)
            raise
        return self._open.begin(holds, _lines(plan))

    async def run(self) -> None:
        """Looks after the limits, for ever: gives back what lies idle, says again what is in use."""
        while True:
            for _ in self.tend():
                await asyncio.sleep(0)
            await asyncio.sleep(TEND_S)

    async def run_bank(self) -> None:
        """Looks after the money, for ever."""
        while True:
            if self._bank.tend(self._clock.monotonic_s()):
                self._plans.clear()
            await asyncio.sleep(BANK_TEND_S)

    def tend(self) -> Iterator[None]:
        """One look after the limits, in pieces, between which requests may be served."""
        self._open.reap()
        now_s = self._clock.monotonic_s()
        for at, (name, rate) in enumerate(list(self._rates.items())):
            if not rate.tend(now_s):
                del self._rates[name]
                self._plans.clear()
            if at % TEND_PIECE == TEND_PIECE - 1:
                yield
        for at, (slot_name, slots) in enumerate(list(self._slots.items())):
            if not slots.tend(now_s) and not slots.used:
                del self._slots[slot_name]
                self._plans.clear()
            if at % TEND_PIECE == TEND_PIECE - 1:
                yield

    def put_back(self) -> None:
        """This edge ends: what it holds of limits goes back to the others."""
        for rate in self._rates.values():
            rate.put_back()
        for slots in self._slots.values():
            slots.put_back()

    async def _take_limits(self, need: Need) -> list[Hold]:
        """What is needed of limits. A Valkey whose answers are slow, one after the other, is as good as none."""
        try:
            return await self._take_all(_limits(self._plan(need), need), LIMITS_WAIT_S)
        except TimeoutError:
            self._line.give_up()
            return await self._take_all(_limits(self._plan(need), need), LIMITS_WAIT_S)

    async def _take_all(self, needs: Needs, wait_s: float) -> list[Hold]:
        """All of it; everybody is asked at once.

        Raises:
            Refusal, TimeoutError: nothing was taken.
        """
        now_s = self._clock.monotonic_s()
        answers = [_take(account, units, now_s) for account, units in needs]
        try:
            async with asyncio.timeout(wait_s):
                return [await answer for answer in answers]
        except BaseException:  # refused, too late, or the client is gone: what did come goes back
            for answer in answers:
                _abandon(answer)
            raise

    def _plan(self, need: Need) -> Plan:
        principal = need.principal
        key = (principal.key_id, need.model_id)
        plan = self._plans.get(key)
        if plan is None or plan.principal is not principal:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._make_plan(principal, need.model_id)
        return plan

    def _make_plan(self, principal: Principal, model_id: str) -> Plan:
        binding = [limit for limit in principal.limits if limit.model_id in (None, model_id)]
        rates = {kind: tuple(self._rate(principal.team_id, limit, kind, figure) for limit in binding
                             if (figure := _figure(limit, kind)) is not None) for kind in ("requests", "tokens")}
        return Plan(
            principal, rates["requests"], rates["tokens"],
            tuple(self._slots_of(principal.team_id, limit, limit.concurrency) for limit in binding
                  if limit.concurrency is not None),
            tuple(self._bank.account(scope, principal.team_id if scope is LimitScope.TEAM else principal.key_id)
                  for scope in principal.money_scopes))

    def _rate(self, team_id: str, limit: RateLimit, kind: str, figure: int) -> Rate:
        name = RateName(team_id, limit.scope, limit.scope_id, limit.model_id, kind)
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = Rate(name, figure, self._line, self._clock, self._live_edges, self._figures)
        rate.limit = figure
        return rate

    def _slots_of(self, team_id: str, limit: RateLimit, figure: int) -> Slots:
        name = SlotName(team_id, limit.scope, limit.scope_id, limit.model_id)
        slots = self._slots.get(name)
        if slots is None:
            slots = self._slots[name] = Slots(
                name, figure, self._edge, self._line, self._clock, self._live_edges, self._figures)
        slots.limit = figure
        return slots

    def _valkey_is_back(self) -> None:
        for slots in self._slots.values():
            slots.again()


def _limits(plan: Plan, need: Need) -> Needs:
    """What is needed of which limit, in the order in which it is taken."""
    tokens = need.prompt_tokens + need.completion_tokens
    needs: Needs = [(account, 1) for account in plan.requests]
    needs += [(account, tokens) for account in plan.tokens]
    needs += [(account, 1) for account in plan.slots]
    return needs


def _money(plan: Plan, need: Need) -> Needs:
    """What is needed of which purse."""
    return [(account, need.cost_nusd) for account in plan.money]


def _figure(limit: RateLimit, kind: str) -> int | None:
    return limit.requests_per_minute if kind == "requests" else limit.tokens_per_minute


def _lines(plan: Plan) -> bytes:
    """The `x-ratelimit-*` lines of the tightest limits."""
    lines = b""
    for rates in (plan.requests, plan.tokens):
        if rates:
            lines += (rates[0] if len(rates) == 1 else min(rates, key=_tightness)).lines()
    return lines


def _tightness(rate: Rate) -> float:
    return rate.remaining / max(1, rate.limit)


def _take(account: Account, units: int, now_s: float) -> "asyncio.Future[Hold]":
    """The units now, or in line behind those who wait already."""
    answer: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()
    try:
        hold = account.take_now(units) if account.head() is None else None
    except Refusal as refused:
        answer.set_exception(refused)
        return answer
    if hold is None:
        return account.take(units, now_s)
    answer.set_result(hold)
    return answer


def _is_good(answer: "asyncio.Future[Hold]") -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None


def _abandon(answer: "asyncio.Future[Hold]") -> None:
    """Whoever waited is gone, or was refused elsewhere."""
    if _is_good(answer):
        _undo([answer.result()])
    else:
        answer.cancel()


def _undo(holds: list[Hold]) -> None:
    for hold in holds:
        hold.account.undo(hold)
