"""What an answer of a datacenter that is no success means: for the request, for the datacenter, for the client.

Dynamo's errors are flat (`{"message","type","code"}`), vLLM's are OpenAI's. Request-shaped refusals go to the client as
they are, in OpenAI's shape, and are never tried again. Everything else is the datacenter's fault and none of its words
reach the client.
"""

import re
from enum import StrEnum

import msgspec
from msgspec import json

from control_plane.contracts import ids
from edge_api import errors
from edge_api.dialects.base import Upstream
from edge_api.errors import Fault, Refusal
from edge_api.routing.table import RoutedModel
from edge_api.upstream.connection import Headers

OVERLOADED_STATUSES = (429, 503, 529)
REQUEST_SHAPED_STATUSES = (400, 409, 413, 415, 422)
NOT_IMPLEMENTED_STATUS = 501  # what Dynamo says of fields that it knows and does not do: the request's own
DEFAULT_RETRY_AFTER_S = 2.0
NEVER_SOONER = 1.25  # with the jitter of a fifth: nobody comes back before an engine said

_UNSUPPORTED = re.compile(r"[Uu]nsupported parameter\(s\): `([^`]+)`")
_BACKTICKED = re.compile(r"`([A-Za-z_.]{1,100})`")
_TOO_LONG = re.compile(r"context (length|window)|maximum (context|model) length|max_model_len|too many tokens", re.I)


class FailureKind(StrEnum):
    """Why an attempt did not answer. `SLOW` was accepted and merely slow: its prompt is not sent again. `CROWDED` never
    left this edge, which has as many connections to the datacenter as it may."""

    LOST = "lost"
    BROKEN = "broken"
    OVERLOADED = "overloaded"
    NOT_SERVED = "not_served"
    SLOW = "slow"
    CROWDED = "crowded"


class Failure(msgspec.Struct, frozen=True, gc=False):
    """One failed attempt. `status` is the datacenter's, 0 if it never answered. `is_shared`: others' requests failed
    there before it, and none was served since."""

    kind: FailureKind
    status: int = 0
    retry_after_s: float | None = None
    is_shared: bool = False

    @property
    def may_be_the_requests_own(self) -> bool:
        """Whether the request itself may be what the engine cannot bear: it answered, and failed while it did.

        Source: a prompt beyond the context window, and a bad JSON schema, are plain 500s of Dynamo. So is everything
        that it is asked while a pool has no worker: then the failure is shared.
        """
        return self.kind is FailureKind.BROKEN and self.status not in (0, 502, 504) and not self.is_shared

    @property
    def is_plain_500(self) -> bool:
        """Whether the datacenter itself, and not one of its connections or doors, said that it failed."""
        return self.kind is FailureKind.BROKEN and self.status == 500 and not self.is_shared

    @property
    def counts_against_datacenter(self) -> bool:
        """Overload is told by the engine and heals by itself; a plain 500 may be one request's own doing; this edge's
        own bound says nothing of the datacenter."""
        return self.kind in (FailureKind.LOST, FailureKind.NOT_SERVED) or self.status in (502, 504) or self.is_shared


class EngineError(msgspec.Struct, gc=False):
    """Either shape of an engine's error."""

    message: str | None = None
    param: str | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode = json.Decoder(EngineError).decode


def judge(status: int, headers: Headers, body: bytes) -> Failure | Refusal:
    """What an answer other than 200 means."""
    if status in REQUEST_SHAPED_STATUSES:
        return _refusal(status, _engine_error(body))
    if status == NOT_IMPLEMENTED_STATUS:
        return _not_implemented(body)
    if status in OVERLOADED_STATUSES:
        return Failure(FailureKind.OVERLOADED, status, _seconds(headers.get(b"retry-after")))
    if status == 404:
        return Failure(FailureKind.NOT_SERVED, status)
    return Failure(FailureKind.BROKEN, status)


def judge_stream_error(code: int | str | None, message: str = "") -> Failure | Refusal:
    """What an error that came as a stream's event means: engines that take a request apart only once they have said 200
    refuse it there."""
    status = int(code) if code is not None and str(code).isdigit() else 200  # the head's, for want of its own
    if status in REQUEST_SHAPED_STATUSES:
        return _refusal(status, EngineError(message))
    kind = FailureKind.OVERLOADED if status in OVERLOADED_STATUSES else FailureKind.BROKEN
    return Failure(kind, status)


def may_go_elsewhere(failures: list[Failure]) -> bool:
    """Whether a request that failed like this, in turn, may be tried in one more datacenter. Never if its prompt was
    accepted and is merely slow; once only if it may be what breaks them."""
    if failures[-1].kind is FailureKind.SLOW:
        return False
    return sum(failure.may_be_the_requests_own for failure in failures) < 2


def give_up(failures: list[Failure], upstream: Upstream = Upstream.CHAT) -> Refusal:
    """What the client is told when every attempt that was allowed has failed."""
    if upstream is Upstream.EMBEDDINGS and all(failure.kind is FailureKind.NOT_SERVED for failure in failures):
        return Refusal(errors.MODEL_NOT_FOUND, "the model makes no embeddings", "model")
    if failures[-1].kind is FailureKind.SLOW:
        return Refusal(errors.UPSTREAM_TIMEOUT, "the model did not begin to answer in time")
    if all(failure.kind is FailureKind.CROWDED for failure in failures):
        return Refusal(errors.EDGE_AT_CAPACITY, "this edge has as many requests open as it may",
                       retry_after_s=ids.jitter(DEFAULT_RETRY_AFTER_S))
    if all(failure.kind in (FailureKind.OVERLOADED, FailureKind.CROWDED) for failure in failures):
        waits = [failure.retry_after_s for failure in failures if failure.retry_after_s is not None]
        wait_s = min(waits, default=DEFAULT_RETRY_AFTER_S)
        return Refusal(errors.CAPACITY_EXHAUSTED, "every datacenter that serves this model is at capacity",
                       retry_after_s=ids.jitter(NEVER_SOONER * wait_s))
    if all(failure.is_plain_500 for failure in failures):  # the SDKs would send three times what breaks engines
        return Refusal(errors.UPSTREAM_BROKEN, "every datacenter that was asked failed on this request; "
                                               "it may be longer than the model's context window")
    return Refusal(errors.UPSTREAM_UNAVAILABLE, "no datacenter could serve the request",
                   retry_after_s=ids.jitter(DEFAULT_RETRY_AFTER_S))


def unroutable(model: RoutedModel, regions: frozenset[str] | None) -> Refusal:
    """What the client is told when no datacenter takes its request, in these regions or (none) anywhere."""
    if regions is not None and any(r.weight > 0 and r.region not in regions for r in model.routes):
        return Refusal(errors.REGION_UNAVAILABLE, "no datacenter in the regions that this request may be served in "
                       "takes requests for the model at the moment", "model")
    reason = model.unroutable_reason or "no datacenter takes requests for it"
    return Refusal(errors.MODEL_UNAVAILABLE, f"the model cannot be served at the moment: {reason}", "model")


def _refusal(status: int, error: EngineError) -> Refusal:
    message = (error.message or "the engine refused the request")[:2000]
    unsupported = _UNSUPPORTED.search(message)
    if unsupported:
        return Refusal(errors.UNSUPPORTED_PARAMETER, message, unsupported[1], status=status)
    fault = errors.CONTEXT_LENGTH_EXCEEDED if _TOO_LONG.search(message) else _FAULTS.get(status, errors.INVALID_VALUE)
    return Refusal(fault, message, error.param, status=status)


def _not_implemented(body: bytes) -> Refusal:
    error = _engine_error(body)
    message = (error.message or "the engine does not do what the request asks for")[:2000]
    named = _BACKTICKED.search(message)
    return Refusal(errors.UNSUPPORTED_PARAMETER, message, error.param or (named[1] if named else None))


_FAULTS: dict[int, Fault] = {413: errors.PAYLOAD_TOO_LARGE, 422: errors.UNPROCESSABLE}


def _engine_error(body: bytes) -> EngineError:
    try:
        error = _decode(body)
        inner = bytes(error.error)
        return _decode(inner) if inner.startswith(b"{") else error
    except (msgspec.DecodeError, RecursionError):
        return EngineError()


def _seconds(value: bytes | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None
