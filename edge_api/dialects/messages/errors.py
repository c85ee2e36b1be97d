"""Errors as Anthropic's clients know them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType, json

from edge_api import errors
from edge_api.errors import Refusal

OVERLOADED = 529
THREAD = "thread"
TYPES: Mapping[int, str] = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 405: "invalid_request_error", 408: "timeout_error", 409: "conflict_error",
    413: "request_too_large", 422: "invalid_request_error", 429: "rate_limit_error", 431: "invalid_request_error",
    504: "timeout_error", OVERLOADED: "overloaded_error",
}


class ErrorDetails(msgspec.Struct):
    """What a client does something about."""

    error_code: Literal["thread_unsupported_request"]


NO_THREADS = ErrorDetails("thread_unsupported_request")  # the client's tool runner goes on without one then


class ErrorObject(msgspec.Struct, omit_defaults=True):
    """`code`, `param` and `metadata` are the same as in our other dialects."""

    type: str
    message: str
    code: str
    param: str | UnsetType = UNSET
    metadata: Mapping[str, str | float] | UnsetType = UNSET
    details: ErrorDetails | UnsetType = UNSET


class ErrorBody(msgspec.Struct):
    """`request_id` is the one in the answer's headers."""

    error: ErrorObject
    request_id: str
    type: Literal["error"] = "error"


def status_of(refused: Refusal) -> int:
    """This dialect alone has a status for a model that is overloaded everywhere."""
    return OVERLOADED if refused.fault is errors.CAPACITY_EXHAUSTED else refused.status


def error_event(refused: Refusal, request_id: UUID) -> bytes:
    """The last event of a stream. It has no status that would tell whether to try again, so it says so itself."""
    metadata = {**refused.metadata, "retryable": refused.fault.retry}
    return b"event: error\ndata: %b\n\n" % error_body(replace(refused, metadata=metadata), request_id)


def error_body(refused: Refusal, request_id: UUID) -> bytes:
    """The whole body."""
    error = ErrorObject(TYPES.get(status_of(refused), "api_error"), refused.message, refused.fault.code,
                        refused.param or UNSET, refused.metadata or UNSET,
                        NO_THREADS if refused.param == THREAD else UNSET)
    return json.encode(ErrorBody(error, f"req_{request_id.hex}"))
