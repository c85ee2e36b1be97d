"""Every error that a client of the edge can meet, in OpenAI's shape: one table, one body, on every path.

The SDKs retry 408, 409, 429 and 5xx by themselves and obey `x-should-retry`; `retry` says whether trying again can
help.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec import json

from control_plane.contracts import ids

MAX_RETRY_AFTER_S = 120.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of error: HTTP status, OpenAI `type` and `code`."""

    status: int
    type: str
    code: str
    retry: bool = False

    @property
    def error_type(self) -> str:
        """What OpenRouter calls it, for whoever reads that vocabulary."""
        return ERROR_TYPES.get(self.code, "server" if self.status >= 500 else "invalid_request")


ERROR_TYPES = {
    "capacity_exhausted": "provider_overloaded", "context_length_exceeded": "context_length_exceeded",
    "model_not_found": "not_found", "rate_limit_exceeded": "rate_limit_exceeded", "timeout": "timeout",
    "upstream_unavailable": "provider_unavailable",
}

INVALID_API_KEY = Fault(401, "authentication_error", "invalid_api_key")
PERMISSION_DENIED = Fault(403, "permission_error", "permission_denied")
TEAM_MISMATCH = Fault(403, "permission_error", "team_mismatch")
REGION_NOT_ALLOWED = Fault(403, "permission_error", "region_not_allowed")
MODEL_NOT_FOUND = Fault(404, "invalid_request_error", "model_not_found")
GENERATION_NOT_FOUND = Fault(404, "invalid_request_error", "generation_not_found")
GENERATION_NOT_YET = Fault(404, "invalid_request_error", "generation_not_found", retry=True)
ROUTE_NOT_FOUND = Fault(404, "invalid_request_error", "not_found")
METHOD_NOT_ALLOWED = Fault(405, "invalid_request_error", "method_not_allowed")
INVALID_JSON = Fault(400, "invalid_request_error", "invalid_json")
INVALID_HTTP = Fault(400, "invalid_request_error", "invalid_http_request")
INVALID_VALUE = Fault(400, "invalid_request_error", "invalid_value")
MISSING_PARAMETER = Fault(400, "invalid_request_error", "missing_required_parameter")
UNSUPPORTED_PARAMETER = Fault(400, "invalid_request_error", "unsupported_parameter")
CONTEXT_LENGTH_EXCEEDED = Fault(400, "invalid_request_error", "context_length_exceeded")
INSUFFICIENT_FUNDS = Fault(402, "insufficient_quota", "insufficient_funds")
BUDGET_EXCEEDED = Fault(402, "insufficient_quota", "budget_exceeded")
REQUEST_TIMEOUT = Fault(408, "invalid_request_error", "request_timeout", retry=True)
PAYLOAD_TOO_LARGE = Fault(413, "invalid_request_error", "payload_too_large")
UNPROCESSABLE = Fault(422, "invalid_request_error", "invalid_value")
HEADERS_TOO_LARGE = Fault(431, "invalid_request_error", "headers_too_large")
RATE_LIMITED = Fault(429, "rate_limit_error", "rate_limit_exceeded", retry=True)
OVER_WHOLE_LIMIT = Fault(429, "rate_limit_error", "rate_limit_exceeded")
CAPACITY_EXHAUSTED = Fault(429, "rate_limit_error", "capacity_exhausted", retry=True)
INTERNAL_ERROR = Fault(500, "server_error", "internal_error", retry=True)
UPSTREAM_UNAVAILABLE = Fault(502, "server_error", "upstream_unavailable", retry=True)
UPSTREAM_BROKEN = Fault(502, "server_error", "upstream_unavailable")
NOT_READY = Fault(503, "server_error", "not_ready", retry=True)
MODEL_UNAVAILABLE = Fault(503, "server_error", "model_unavailable", retry=True)
REGION_UNAVAILABLE = Fault(503, "server_error", "region_unavailable", retry=True)
ACCOUNT_UNAVAILABLE = Fault(503, "server_error", "account_unavailable", retry=True)
KEY_CHECK_UNAVAILABLE = Fault(503, "server_error", "key_check_unavailable", retry=True)
EDGE_AT_CAPACITY = Fault(503, "server_error", "edge_at_capacity", retry=True)
ADMISSION_UNAVAILABLE = Fault(503, "server_error", "admission_unavailable", retry=True)
METERING_UNAVAILABLE = Fault(503, "server_error", "metering_unavailable", retry=True)
UPSTREAM_TIMEOUT = Fault(504, "server_error", "timeout", retry=True)

REASONS = {
    200: b"OK", 400: b"Bad Request", 401: b"Unauthorized", 402: b"Payment Required", 403: b"Forbidden",
    404: b"Not Found", 405: b"Method Not Allowed", 408: b"Request Timeout", 409: b"Conflict",
    413: b"Payload Too Large", 422: b"Unprocessable Content", 429: b"Too Many Requests",
    431: b"Request Header Fields Too Large", 500: b"Internal Server Error", 502: b"Bad Gateway",
    503: b"Service Unavailable", 504: b"Gateway Timeout",
}


class ErrorObject(msgspec.Struct, omit_defaults=False):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None
    code: str | None
    metadata: dict[str, str | float] | msgspec.UnsetType = msgspec.UNSET


class ErrorBody(msgspec.Struct):
    """The whole body."""

    error: ErrorObject


@dataclass(slots=True, eq=False)
class Refusal(Exception):
    """An error to answer with. `message` is for the client's developer and holds no prompt text and no secret.

    `retry_after_s` is what to tell the client; null takes the fault's default.
    """

    fault: Fault
    message: str
    param: str | None = None
    retry_after_s: float | None = None
    status: int = 0
    metadata: Mapping[str, str | float] = field(default_factory=dict)
    more_headers: tuple[tuple[bytes, bytes], ...] = ()

    def __post_init__(self) -> None:
        self.status = self.status or self.fault.status

    def body(self) -> bytes:
        """The JSON body."""
        return error_body(self.fault, self.message, self.param, self.metadata)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that belong to the error: when to try again, and whether to."""
        headers = [(b"x-should-retry", b"true" if self.fault.retry else b"false"), *self.more_headers]
        wait_s = self.retry_after_s
        if wait_s is None and self.fault.retry and self.status in (429, 503):
            wait_s = ids.jitter(1.5)
        if wait_s is not None:
            wait_s = min(max(wait_s, 0.1), MAX_RETRY_AFTER_S)
            headers.append((b"retry-after", b"%d" % max(1, round(wait_s))))
            headers.append((b"retry-after-ms", b"%d" % round(wait_s * 1000)))
        return headers


def error_body(fault: Fault, message: str, param: str | None = None,
               metadata: Mapping[str, str | float] | None = None) -> bytes:
    """An error's JSON body."""
    error = ErrorObject(message, fault.type, param, fault.code, dict(metadata) if metadata else msgspec.UNSET)
    return json.encode(ErrorBody(error))
