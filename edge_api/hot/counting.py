"""A request that only asks how many tokens its prompt has: a datacenter is asked for the prompt's ids, nothing is
generated, and nothing is billed.
"""

import asyncio

import structlog

from control_plane.contracts.keys import Principal
from edge_api import errors
from edge_api.errors import Refusal
from edge_api.hot.client import CLIENT_GONE_STATUS, Client
from edge_api.hot.failure import Failure, FailureKind, give_up, judge, may_go_elsewhere, unroutable
from edge_api.hot.hotpath import HotPath
from edge_api.hot.request import Prepared
from edge_api.hot.services import RouteNeed
from edge_api.hot.splice import salted
from edge_api.hot.wire import trace_headers
from edge_api.resume.ask import NoAnswer
from edge_api.resume.prompt import prompt_ids
from edge_api.routing.retry import backoff_s
from edge_api.routing.table import Route, RoutedModel

DEADLINE_S = 20.0

log = structlog.get_logger()


class Counting:
    """Owns the question, and asks elsewhere, within the retry budget, when a datacenter does not answer it."""

    def __init__(self, client: Client, hot: HotPath, principal: Principal, model: RoutedModel, prepared: Prepared,
                 session: str, need: RouteNeed) -> None:
        self._client, self._hot, self._model, self._prepared = client, hot, model, prepared
        self._salt, self._session, self._need = principal.cache_salt, session, need
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Asks.

        Raises:
            Refusal: no datacenter can be asked.
        """
        self._hot.services.retries.note_request()
        route = self._route(frozenset())
        if route is None:
            raise unroutable(self._model, self._need.regions)
        self._task = asyncio.get_running_loop().create_task(self._count(route))

    def client_gone(self) -> int:
        """Nobody waits for the answer."""
        if self._task is not None:
            self._task.cancel()
        return CLIENT_GONE_STATUS

    def pause(self) -> None:
        """There is nothing to pause: the answer is one small write."""

    def resume(self) -> None:
        """See `pause`."""

    async def _count(self, route: Route) -> None:
        tell = self._prepared.asked.counts
        try:
            tokens = await self._tokens(route)
            if tell is None:
                raise RuntimeError("a request that does not ask for a count was counted")
            self._client.answer(b"", tell(tokens))
            self._client.finish(200)
        except Refusal as refused:
            self._client.refuse(refused)
        except Exception:  # a fault of ours must answer 500 in the client's shape, not leave it waiting
            log.exception("count_failed", request_id=str(self._client.request_id))
            self._client.refuse(Refusal(errors.INTERNAL_ERROR, "the edge failed on this request"))

    async def _tokens(self, first: Route) -> int:
        """Asks until somebody answers or no more may be asked."""
        services, route = self._hot.services, first
        failures: list[Failure] = []
        excluded: frozenset[str] = frozenset()
        while True:
            try:
                return await self._ask(route)
            except NoAnswer as error:
                failure = _failure(error)
            services.metrics.upstream_failed(route.datacenter_id, failure.kind)
            failures.append(failure)
            excluded |= {route.datacenter_id}
            found = self._route(excluded) if len(failures) < services.limits.max_attempts else None
            if found is None or not may_go_elsewhere(failures) or not services.retries.allow():
                raise give_up(failures)
            services.metrics.retried()
            await asyncio.sleep(backoff_s(len(failures)))
            route = found

    async def _ask(self, route: Route) -> int:
        pieces = self._prepared.pieces
        if self._salt and route.engine.is_salt_aware:
            pieces = salted(pieces, self._salt)  # an engine that is slow to hang up begins with the prefill
        trace = trace_headers(self._client.headers, self._client.request_id)
        answer = await prompt_ids(self._hot.pool, self._hot.place(route).address, self._prepared.asked.upstream,
                                  b"".join(pieces), DEADLINE_S, trace)
        return answer.tokens

    def _route(self, excluded: frozenset[str]) -> Route | None:
        return self._hot.services.chooser.choose(self._model, self._session, excluded, self._need)


def _failure(error: NoAnswer) -> Failure:
    """What became of a question that was not answered.

    Raises:
        Refusal: the request itself is what cannot be.
    """
    if error.status == 0:
        return Failure(FailureKind.LOST)
    if error.status == 200:
        return Failure(FailureKind.BROKEN, error.status)
    judged = judge(error.status, {}, error.body)
    if isinstance(judged, Refusal):
        raise judged from None
    return judged
