"""A request that only asks how many tokens its prompt has: a datacenter is asked for the prompt's ids, nothing is
generated, and nothing is billed.
"""

import asyncio

import structlog

from edge_api import errors
from edge_api.errors import Refusal
from edge_api.hot.dispatch import CLIENT_GONE_STATUS, Client
from edge_api.hot.failure import judge
from edge_api.hot.hotpath import HotPath
from edge_api.hot.request import Prepared
from edge_api.hot.services import RouteNeed
from edge_api.hot.wire import trace_headers
from edge_api.resume.ask import NoAnswer
from edge_api.resume.prompt import prompt_ids
from edge_api.routing.table import Route, RoutedModel

DEADLINE_S = 20.0

log = structlog.get_logger()


class Counting:
    """Owns the question, and asks in a second datacenter when the first does not answer."""

    def __init__(self, client: Client, hot: HotPath, model: RoutedModel, prepared: Prepared, session: str,
                 need: RouteNeed) -> None:
        self._client, self._hot, self._model, self._prepared = client, hot, model, prepared
        self._session, self._need = session, need
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Asks.

        Raises:
            Refusal: no datacenter can be asked.
        """
        self._task = asyncio.get_running_loop().create_task(self._count(self._route(frozenset())))

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

    async def _tokens(self, route: Route) -> int:
        try:
            return await self._ask(route)
        except NoAnswer:
            self._hot.services.metrics.retried()
            try:
                return await self._ask(self._route(frozenset({route.datacenter_id})))
            except NoAnswer as error:
                raise Refusal(errors.UPSTREAM_UNAVAILABLE, "no datacenter could count the prompt's tokens",
                              retry_after_s=1.0) from error

    async def _ask(self, route: Route) -> int:
        place, body = self._hot.place(route), b"".join(self._prepared.pieces)
        trace = trace_headers(self._client.headers, self._client.request_id)
        try:
            return (await prompt_ids(self._hot.pool, place.address, self._prepared.asked.upstream, body, DEADLINE_S,
                                     trace)).tokens
        except NoAnswer as error:
            judged = judge(error.status, {}, error.body) if error.status not in (0, 200) else None
            if isinstance(judged, Refusal):
                raise judged from None
            raise

    def _route(self, excluded: frozenset[str]) -> Route:
        route = self._hot.services.chooser.choose(self._model, self._session, excluded, self._need)
        if route is None:
            raise Refusal(errors.MODEL_UNAVAILABLE, "no datacenter can count the prompt's tokens now", "model")
        return route
