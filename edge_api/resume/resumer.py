"""Takes a broken stream to another datacenter: judged, given a place, its prompt's ids and grammar asked for, its
request written. What then has to be sent, and how the answer is to be read, is a `Continuation`.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec
import structlog

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.ids import jitter
from edge_api.dialects.base import Upstream
from edge_api.hot.splice import salted
from edge_api.resume import arguments, demand, eligibility, grammar, plan, stitch
from edge_api.resume.ask import NoAnswer
from edge_api.resume.demand import Demand, Unreadable
from edge_api.resume.eligibility import Verdict
from edge_api.resume.journal import Journal, Seam
from edge_api.resume.prompt import prompt_ids, written_ids
from edge_api.resume.spread import NoPlace, Slot, Spread
from edge_api.resume.stitch import BadContinuation, Stitch
from edge_api.routing.table import Route
from edge_api.upstream.pool import UpstreamPool

AT_ONCE = 32
MAX_WAITING = 2_000
WAIT_S = 20.0
PAUSE_S = 0.1
LOOK_S = 0.25
FORGIVEN_AFTER_S = 1.0
"""A stream that waits for a datacenter looks for one that often, and again at one that did not answer after that long.
"""
PROMPT_DEADLINE_S = 10.0
GRAMMAR_DEADLINE_S = 5.0
ANYWHERE_ELSE = frozenset({Verdict.OTHER_ENGINE, Verdict.NO_GRAMMAR})
DISAGREES = b'data: {"error":{"message":"the continuation does not fit","code":"continuation"}}\n\n'

log = structlog.get_logger()


class NotResumed(Exception):
    """The stream does not go on there. `reason` is a word for metrics; `elsewhere`: another datacenter may do."""

    def __init__(self, reason: str, elsewhere: bool) -> None:
        super().__init__(reason)
        self.reason, self.elsewhere = reason, elsewhere


class Break(NamedTuple):
    """A stream that broke. `sent` is the body of its first attempt, `usage` the newest that it told (bytes of JSON, may
    be empty), `engine` the one that it came from last, `salt` its team's for engines that keep salts apart."""

    request_id: str
    sent: bytes
    upstream: Upstream
    journal: Journal
    usage: bytes
    engine: EngineFacts
    strict_seed: bool
    salt: str = ""


class Continuation:
    """What goes on with a stream. With an empty `body` nothing is to be sent: `events` end the stream. `delivered` is
    how many tokens the client has."""

    __slots__ = ("_begun", "_slot", "_stitch", "body", "delivered", "events")

    def __init__(self, body: bytes, delivered: int, stitched: Stitch | None = None, slot: Slot | None = None,
                 events: bytes = b"") -> None:
        self.body, self.delivered, self.events = body, delivered, events
        self._stitch, self._slot = stitched, slot
        self._begun: Callable[[], None] | None = None

    def when_begun(self, call: Callable[[], None]) -> None:
        """Calls once, when the first new event is there."""
        self._begun = call

    def rewrite(self, event: bytes) -> bytes:
        """An event of the continuation as one of the stream. One that does not fit becomes an error, so that the stream
        is tried again or ends honestly."""
        try:
            out = event if self._stitch is None else self._stitch.take(event)
        except BadContinuation as error:
            log.warning("continuation_refused", reason=str(error))
            out = DISAGREES
        if self._begun is not None and b'"choices"' in out:
            call, self._begun = self._begun, None
            self.leave()
            call()
        return out

    def leave(self) -> None:
        """Gives the place in the datacenter's queue up."""
        if self._slot is not None:
            self._slot.leave()


class Seeker(Protocol):
    """Whose stream broke. Exactly one of `goes_on` and `not_resumed` comes."""

    def resumes_in(self, refused: frozenset[str]) -> Route | None:
        """A datacenter to try, other than those; none ends the search."""
        ...

    def goes_on(self, continuation: Continuation, route: Route) -> None: ...

    def may_wait(self) -> bool:
        """Whether a datacenter to try may come back."""
        ...

    def not_resumed(self, reason: str) -> None:
        """`reason` is a word for metrics."""
        ...


class Mover(Protocol):
    """Whose stream leaves a datacenter that lives. One of `moves` and `stays` comes, unless the search is cancelled."""

    def moves_to(self) -> Route | None:
        """Where it can go, if anywhere."""
        ...

    def holds(self) -> Break | None:
        """Keeps the stream where it is until `moves` or `stays`; null if it cannot be kept."""
        ...

    def moves(self, continuation: Continuation, route: Route) -> None: ...

    def stays(self) -> None: ...


class Resumer:
    """Owns the places in each datacenter. One for each edge process. A stream that broke while no datacenter could be
    reached waits for one, for `place_wait_s` at most."""

    def __init__(self, pool: UpstreamPool, spread: Spread | None = None, place_wait_s: float = 0.0) -> None:
        self._pool, self._place_wait_s = pool, place_wait_s
        self._spread = spread or Spread(AT_ONCE, MAX_WAITING, WAIT_S, PAUSE_S)

    async def seek(self, broken: Break, seeker: Seeker, resumed: Callable[[float], None]) -> None:
        """Takes the stream to another datacenter, or says that there is none. `resumed` is told the seconds until the
        first new event."""
        loop = asyncio.get_running_loop()
        broke_at_s = loop.time()
        try:
            continuation, route = await self.find(broken, seeker.resumes_in, seeker.may_wait)
            continuation.when_begun(lambda: resumed(loop.time() - broke_at_s))
            seeker.goes_on(continuation, route)
        except NotResumed as error:
            seeker.not_resumed(error.reason)
        except Exception:  # a fault of ours must end the stream honestly, not leave it open for ever
            log.exception("resume_failed", request=broken.request_id)
            seeker.not_resumed("fault")

    async def find(self, broken: Break, choose: Callable[[frozenset[str]], Route | None],
                   may_wait: Callable[[], bool] = lambda: False) -> tuple[Continuation, Route]:
        """Where and how the stream goes on. `choose` gives a datacenter other than those that have just said no. When
        it gives none, one may come back for as long as `may_wait` says so.

        Raises:
            NotResumed: nowhere.
        """
        refused: frozenset[str] = frozenset()
        reason, time_s = "no_datacenter", asyncio.get_running_loop().time
        until_s = time_s() + self._place_wait_s
        forgiven_s, is_fit = 0.0, False
        while True:
            route = choose(refused)
            if route is None:
                is_fit = is_fit or self._goes_on(broken, broken.engine)
                if not is_fit or reason in ANYWHERE_ELSE or time_s() >= until_s or not may_wait():
                    raise NotResumed(reason, elsewhere=False)
                await asyncio.sleep(jitter(LOOK_S))
                if time_s() >= forgiven_s:
                    refused = frozenset()
                continue
            try:
                return await self.go_on(broken, route), route
            except NotResumed as error:
                if not error.elsewhere:
                    raise
                refused, reason = refused | {route.datacenter_id}, error.reason
                forgiven_s = time_s() + FORGIVEN_AFTER_S

    async def move(self, broken: Break, mover: Mover, resumed: Callable[[float], None]) -> None:
        """Takes a living stream elsewhere, or leaves it where it is. It is read on until there is a place for it, and
        held only while its continuation is written."""
        loop, route = asyncio.get_running_loop(), mover.moves_to()
        try:
            if route is None or not self._goes_on(broken, route.engine, is_done=False):
                mover.stays()
                return
            slot = await self._spread.enter(route.datacenter_id)
            held_s, held = loop.time(), mover.holds()
            if held is None:
                slot.leave()
                mover.stays()
                return
            continuation = await self.go_on(held, route, slot)
        except (NotResumed, NoPlace) as error:
            log.info("stream_stays", request=broken.request_id, reason=str(error))
            mover.stays()
        except Exception:  # a fault of ours must not end a stream that could still finish
            log.exception("move_failed", request=broken.request_id)
            mover.stays()
        else:
            continuation.when_begun(lambda: resumed(loop.time() - held_s))
            mover.moves(continuation, route)

    def _goes_on(self, broken: Break, there: EngineFacts, is_done: bool = True) -> bool:
        """Whether the stream, as it is now, could go on in such an engine; `is_done`: or is all but done."""
        try:
            asked = demand.read(broken.sent)
            seam = broken.journal.seam(broken.engine.reasoning, asked.stops)
        except (Unreadable, msgspec.DecodeError):
            return False
        verdict = eligibility.judge(asked, seam, broken.engine, there, broken.strict_seed)
        return verdict in eligibility.GOES_ON and (is_done or verdict is not Verdict.COMPLETE)

    async def go_on(self, broken: Break, route: Route, slot: Slot | None = None) -> Continuation:
        """How the stream goes on in that datacenter. Its journal is at the seam then. Without a `slot` it waits for
        one; one that it has is left where it is of no use.

        Raises:
            NotResumed: it does not.
        """
        try:
            return await self._go_on(broken, route, slot)
        except BaseException:  # whoever is cancelled must not keep the place
            if slot is not None:
                slot.leave()
            raise

    async def _go_on(self, broken: Break, route: Route, slot: Slot | None) -> Continuation:
        try:
            asked = demand.read(broken.sent)
            seam = broken.journal.seam(broken.engine.reasoning, asked.stops)
            verdict = eligibility.judge(asked, seam, broken.engine, route.engine, broken.strict_seed)
            if verdict not in eligibility.GOES_ON or seam is None:
                raise NotResumed(verdict, verdict in ANYWHERE_ELSE)
            if verdict is Verdict.COMPLETE:
                return self._complete(broken, seam, slot)
            return await self._continue(broken, route, asked, seam, verdict, slot)
        except (Unreadable, msgspec.DecodeError):
            raise NotResumed(Verdict.UNREADABLE, elsewhere=False) from None
        except grammar.NoGrammar as error:
            log.warning("resume_without_grammar", datacenter=route.datacenter_id, reason=str(error))
            raise NotResumed(Verdict.NO_GRAMMAR, elsewhere=False) from None
        except NoAnswer as error:
            log.warning("resume_unanswered", datacenter=route.datacenter_id, status=error.status, reason=str(error))
            raise NotResumed("no_answer", elsewhere=True) from None
        except NoPlace:
            raise NotResumed("no_place", elsewhere=True) from None

    def _complete(self, broken: Break, seam: Seam, slot: Slot | None) -> Continuation:
        first = broken.journal.last
        if slot is not None:
            slot.leave()
        broken.journal.go_on(seam)
        return Continuation(b"", seam.tokens, events=stitch.closing(first, broken.usage, seam.tokens))

    async def _continue(self, broken: Break, route: Route, asked: Demand, seam: Seam, verdict: Verdict,
                        slot: Slot | None) -> Continuation:
        slot = slot or await self._spread.enter(route.datacenter_id)
        try:
            body = broken.sent
            if verdict is not Verdict.RESEND:
                ids = await self._prompt_ids(broken, route, asked)
                left = await self._grammar_left(route, asked, seam, verdict)
                body = plan.continuation(broken.sent, broken.upstream, asked, seam, verdict, ids, left)
            stitched = Stitch(broken.journal.last, broken.usage, seam, arguments.schemas(asked),
                              broken.engine.reasoning)
        except BaseException:  # whoever is cancelled must not keep the place
            slot.leave()
            raise
        broken.journal.go_on(seam)
        return Continuation(body, seam.tokens, stitched, slot)

    async def _prompt_ids(self, broken: Break, route: Route, asked: Demand) -> bytes:
        known = written_ids(asked.prompt)
        if known is not None:
            return known
        name = f"x-request-id: {broken.request_id}.p\r\n".encode()
        sent = broken.sent
        if broken.salt and route.engine.is_salt_aware:  # what an engine prefills before it hears the end is found again
            sent = b"".join(salted([sent], broken.salt))
        answer = await prompt_ids(self._pool, route.address, broken.upstream, sent, PROMPT_DEADLINE_S, name)
        return answer.ids

    async def _grammar_left(self, route: Route, asked: Demand, seam: Seam, verdict: Verdict) -> str:
        constraint = asked.constraint()
        if verdict is not Verdict.CONSTRAIN or constraint is None or route.engine.grammar_url is None:
            return ""
        return await grammar.residual(self._pool, route.engine.grammar_url, constraint, seam.text, GRAMMAR_DEADLINE_S)
