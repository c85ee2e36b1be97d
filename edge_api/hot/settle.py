"""The two usage frames of a request: `open` before it is sent upstream, and one record when it is over."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import structlog

from control_plane.contracts.keys import Principal
from control_plane.contracts.pricing import Cost
from control_plane.contracts.usage import Attempt, Outcome, UsageOpen, UsageRecord
from edge_api import errors
from edge_api.dialects.base import Asked
from edge_api.errors import Refusal
from edge_api.hot.answer import TOOL_CALLS
from edge_api.hot.fields import ChatFields
from edge_api.hot.services import Grant, OutboxFull, Services
from edge_api.hot.usage import Counts, cost_of
from edge_api.routing.table import RoutedModel
from edge_api.tool_calls.verdict import Called

OK = 200
MICRO, MILLI = 1_000_000, 1_000  # times are told in milliseconds, to the microsecond

log = structlog.get_logger()


class Journal(Protocol):
    """Where a request's frames are written."""

    def open(self) -> None:
        """Journals that the request is about to be sent.

        Raises:
            Refusal: it could not be journalled, so it must not be sent.
        """
        ...

    def first_byte(self) -> None:
        """The first byte of the answer is about to be written."""
        ...

    def settle(self, outcome: Outcome, counts: Counts, http_status: int, attempts: list[Attempt],
               finish_reason: str = "", cost: Cost | None = None, calls: Sequence[Called] = ()) -> None:
        """Journals what the request used, and has its calls judged if it ended with calls."""
        ...


class RequestJournal:
    """One request's frames. The record is written once, whoever asks first; then the grant knows what was used."""

    __slots__ = ("_asked", "_dialect", "_first_byte_s", "_grant", "_model", "_opened_at_s", "_principal", "_request_id",
                 "_services", "_session", "_settled", "_started_s")

    def __init__(self, services: Services, request_id: UUID, principal: Principal, model: RoutedModel, asked: Asked,
                 started_s: float, dialect: str, session: str, grant: Grant) -> None:
        self._services, self._request_id, self._principal, self._model = services, request_id, principal, model
        self._asked, self._started_s, self._dialect, self._session = asked, started_s, dialect, session
        self._grant = grant
        self._opened_at_s = services.clock.time_s()
        self._first_byte_s: float | None = None
        self._settled = False

    def open(self) -> None:
        """Journals that the request is about to be sent.

        Raises:
            Refusal: it could not be journalled, so it must not be sent.
        """
        try:
            self._services.outbox.open(UsageOpen(
                self._request_id, self._principal.team_id, self._principal.key_id, self._model.id,
                self._model.price.version, self._opened_at_s))
        except (OutboxFull, OSError) as error:
            log.error("usage_open_failed", request_id=str(self._request_id), error=str(error))
            raise Refusal(errors.METERING_UNAVAILABLE, "the edge cannot meter requests at the moment") from error

    def first_byte(self) -> None:
        """The first byte of the answer is about to be written."""
        self._first_byte_s = self._services.clock.monotonic_s() - self._started_s
        self._services.metrics.first_byte(self._first_byte_s)

    def settle(self, outcome: Outcome, counts: Counts, http_status: int, attempts: list[Attempt],
               finish_reason: str = "", cost: Cost | None = None, calls: Sequence[Called] = ()) -> None:
        """Journals what the request used. A record that cannot be written is told, and the answer goes on: its `open`
        frame stays, and the engine's witness settles it."""
        if self._settled:
            return
        self._settled = True
        price, ttft_s = self._model.price, self._first_byte_s
        cost = cost or cost_of(price, counts)
        duration_s = self._services.clock.monotonic_s() - self._started_s
        record = UsageRecord(  # by place: names cost as much again as everything else here
            self._request_id, self._principal.team_id, self._principal.key_id, self._model.id,
            attempts[-1].datacenter_id if attempts else "", price.version, outcome, counts.meter, self._asked.streamed,
            http_status, counts.prompt, counts.cached, counts.completion, counts.reasoning, cost.total_text, attempts,
            self._opened_at_s, int(duration_s * MICRO) / MILLI,
            None if ttft_s is None else int(ttft_s * MICRO) / MILLI, finish_reason, self._dialect, self._session,
            resumes=sum(attempt.delivered > 0 for attempt in attempts) if attempts[1:] else 0)
        try:
            self._services.outbox.record(record)
        except (OutboxFull, OSError) as error:
            log.error("usage_record_failed", request_id=str(self._request_id), error=str(error))
            self._services.metrics.unsettled()
        self._grant.settle(counts.prompt + counts.completion, cost.total_nusd)
        if outcome is Outcome.UPSTREAM_LOST and http_status == OK:
            self._services.metrics.broken()
        elif ttft_s is not None and counts.completion > 1 and self._asked.streamed and outcome is Outcome.COMPLETED:
            self._services.metrics.streamed((duration_s - ttft_s) / (counts.completion - 1))
        if finish_reason == TOOL_CALLS and outcome is Outcome.COMPLETED:
            fields = self._asked.fields
            offered = fields.tools if isinstance(fields, ChatFields) else None
            self._services.judge.take(self._model.id, record.datacenter_id, offered or (), calls)
