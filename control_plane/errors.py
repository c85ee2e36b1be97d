"""Every refusal that the control plane answers with, and the one place that turns it into HTTP.

::

    Refusal                    400 bad_request
    ├── Unauthenticated        401 unauthenticated
    ├── Forbidden              403 forbidden
    ├── NotFound               404 not_found
    ├── Conflict               409 conflict
    │   ├── UnsafeChange       409 unsafe_change       a safety rule, named, with its numbers
    │   └── IllegalTransition  409 illegal_transition
    ├── Gone                   410 gone
    ├── TooLarge               413 too_large
    └── Unavailable            503 unavailable
        └── DatabaseAway       503 database_away

A subclass or a call may narrow `code`; `status` is the class's.
"""

from collections.abc import Mapping
from typing import ClassVar

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from control_plane.contracts.problem import Problem

log = structlog.get_logger()

HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 422: "invalid"}
CONNECTION_LOST = ("08", "57P")
DATA_EXCEPTION = "22"
RETRY_AFTER_S = 1


class Refusal(Exception):
    """The request is refused. The message is for people and says what to do."""

    status: ClassVar[int] = 400
    code: str = "bad_request"

    def __init__(self, message: str, *, code: str | None = None, rule: str | None = None,
                 numbers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.rule = rule
        self.numbers = dict(numbers or {})

    @property
    def problem(self) -> Problem:
        return Problem(code=self.code, message=str(self), rule=self.rule, numbers=self.numbers)


class Unauthenticated(Refusal):
    """Nobody that we know: no token or signature, a wrong, an expired or a revoked one."""

    status = 401
    code = "unauthenticated"


class Forbidden(Refusal):
    """Known, and still not allowed to do this."""

    status = 403
    code = "forbidden"


class NotFound(Refusal):
    """There is no such thing, or it is another team's."""

    status = 404
    code = "not_found"


class Conflict(Refusal):
    """What is stored says otherwise."""

    status = 409
    code = "conflict"


class UnsafeChange(Conflict):
    """A safety rule forbids the change; `rule` names it and `numbers` are what it counted."""

    code = "unsafe_change"


class IllegalTransition(Conflict):
    """The thing is in a state from which there is no such move."""

    code = "illegal_transition"


class Gone(Refusal):
    """It was so once and never will be again."""

    status = 410
    code = "gone"


class TooLarge(Refusal):
    """The request is larger than this route takes."""

    status = 413
    code = "too_large"


class Unavailable(Refusal):
    """It cannot be answered now; the same request may succeed later."""

    status = 503
    code = "unavailable"


class DatabaseAway(Unavailable):
    """Postgres does not answer."""

    code = "database_away"


def install(app: FastAPI) -> None:
    """Makes `app` answer every failure with a `Problem`."""
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    for away in (DBAPIError, PoolTimeout, OSError, TimeoutError):
        app.add_exception_handler(away, _database)
    app.add_exception_handler(Exception, _bug)


def answer(status: int, problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """`problem` as an HTTP answer."""
    return JSONResponse(problem.model_dump(), status_code=status, headers=dict(headers or {}))


def is_database_away(error: Exception) -> bool:
    """Whether `error` means that Postgres does not answer, rather than that a statement is wrong."""
    if isinstance(error, DBAPIError):
        state = str(getattr(error.orig, "sqlstate", None) or "")
        lost = isinstance(error, InterfaceError | OperationalError) and not state
        return lost or error.connection_invalidated or state.startswith(CONNECTION_LOST)
    return isinstance(error, PoolTimeout | OSError | TimeoutError)


async def _refusal(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refusal)  # noqa: S101
    headers = {"retry-after": str(RETRY_AFTER_S)} if isinstance(error, Unavailable) else {}
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    return answer(error.status, error.problem, headers)


async def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101
    code = HTTP_CODES.get(error.status_code, "http_error")
    return answer(error.status_code, Problem(code=code, message=str(error.detail)), error.headers)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    """Names each faulty field and what is wrong with it; never repeats the value, which may be a secret."""
    assert isinstance(error, RequestValidationError)  # noqa: S101
    faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:10]]
    return answer(422, Problem(code="invalid", message="; ".join(faults)))


async def _database(request: Request, error: Exception) -> JSONResponse:
    if str(getattr(getattr(error, "orig", None), "sqlstate", None) or "").startswith(DATA_EXCEPTION):
        return answer(400, Problem(code="bad_value", message="a value in the request cannot be stored"))
    if not is_database_away(error):
        return await _bug(request, error)
    log.warning("database_away", path=request.url.path, error=type(error).__name__)
    return await _refusal(request, DatabaseAway("the database does not answer; try again"))


async def _bug(request: Request, error: Exception) -> JSONResponse:
    log.error("unhandled_error", path=request.url.path, error=type(error).__name__, exc_info=error)
    return answer(500, Problem(code="internal", message="the control plane failed; its log says why"))
