"""The operator API, asked by a person: one bounded call at a time, on whichever replica answers."""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from control_plane.cli.errors import CommandFailed, Denied, Refused, Unreachable, UsageFault
from control_plane.cli.stack import ControlPlaneAccess
from control_plane.contracts.operator import Page
from control_plane.contracts.problem import Problem

Answer = TypeVar("Answer", bound=BaseModel)
Params = Mapping[str, str | Sequence[str]]

DEADLINE_S = 15.0
CONNECT_DEADLINE_S = 2.0
PAGE_LIMIT = 100
NOT_STARTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class OperatorClient:
    """Calls each replica once, in turn, until one answers.

    A replica that failed after it may have begun is passed over only when a repeat does no harm: for reads, and for
    orders that carry an idempotency key.
    """

    def __init__(self, access: ControlPlaneAccess, deadline_s: float = DEADLINE_S) -> None:
        self._urls = list(access.urls)
        self._client = httpx.Client(
            trust_env=False,
            timeout=httpx.Timeout(deadline_s, connect=min(CONNECT_DEADLINE_S, deadline_s)),
            headers={"authorization": f"Bearer {access.token}"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._client.close()

    def get(self, path: str, answer: type[Answer], params: Params | None = None) -> Answer:
        """Reads one document."""
        return _parse(self._send("GET", path, params=params, repeatable=True), answer)

    def pages(self, path: str, page: type[Page[Answer]], limit: int, params: Params | None = None) -> Iterator[Answer]:
        """Reads at most `limit` items of a list, page by page."""
        cursor: str | None = None
        while limit > 0:
            asked = {**(params or {}), "limit": str(min(limit, PAGE_LIMIT)), **({"cursor": cursor} if cursor else {})}
            got = self.get(path, page, asked)
            yield from got.data[:limit]
            limit, cursor = limit - len(got.data), got.next_cursor
            if cursor is None or not got.data:
                return

    def post(self, path: str, body: BaseModel | None, answer: type[Answer], idempotency_key: str = "") -> Answer:
        """Orders something; with an idempotency key the order may be repeated and is carried out once."""
        headers = {"idempotency-key": idempotency_key} if idempotency_key else {}
        return _parse(self._send("POST", path, body, headers=headers, repeatable=bool(idempotency_key)), answer)

    def put(self, path: str, body: BaseModel, answer: type[Answer]) -> Answer:
        """Declares a whole document."""
        return _parse(self._send("PUT", path, body, repeatable=True), answer)

    def delete(self, path: str) -> None:
        """Ends something; ending it twice does no harm."""
        self._send("DELETE", path, repeatable=True)

    def _send(self, method: str, path: str, body: BaseModel | None = None, *, params: Params | None = None,
              headers: dict[str, str] | None = None, repeatable: bool) -> httpx.Response:
        content = body.model_dump_json() if body is not None else None
        if content is not None:
            headers = {**(headers or {}), "content-type": "application/json"}
        faults = []
        for url in self._urls:
            try:
                answer = self._client.request(method, url + path, content=content, params=params, headers=headers)
            except httpx.InvalidURL as error:
                raise UsageFault(f"{url} is no address: {error}") from error
            except httpx.TransportError as error:
                faults.append(f"{url} ({describe(error)})")
                if not (repeatable or isinstance(error, NOT_STARTED)):
                    raise Unreachable(f"{faults[-1]}: it may have been carried out, look before you repeat") from error
                continue
            if answer.status_code < 500:
                return _accepted(answer)
            faults.append(f"{url} (HTTP {answer.status_code}{_said(answer)})")
            if not repeatable and answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
        raise Unreachable(f"no answer from the control plane at {', '.join(faults)}: is the stack up?")


def segment(text: str) -> str:
    """An identifier that a person typed, as one segment of a path."""
    return quote(text, safe="")


def describe(error: httpx.TransportError) -> str:
    """A transport fault in two words."""
    match error:
        case httpx.ConnectTimeout() | httpx.ConnectError() if "refused" not in str(error).lower():
            return "cannot connect"
        case httpx.ConnectError():
            return "connection refused"
        case httpx.TimeoutException():
            return "no answer in time"
        case httpx.UnsupportedProtocol():
            return "not an http address"
        case _:
            return "connection lost"


def _parse(response: httpx.Response, answer: type[Answer]) -> Answer:
    try:
        return answer.model_validate_json(response.content)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"])) or "its body"
        raise CommandFailed(
            f"{response.request.url.host} answered something else than a control plane of this release ({place}): "
            "compare the versions", code="bad_answer") from error


def _accepted(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        problem = Problem(code=f"http_{response.status_code}", message=f"HTTP {response.status_code}{_said(response)}")
    raise failure(problem, response.status_code)


def failure(problem: Problem, status: int) -> CommandFailed:
    """What a refusal by the control plane means on the command line."""
    if problem.rule:
        return Refused(problem.message, code=problem.code, rule=problem.rule, numbers=problem.numbers)
    if status == httpx.codes.UNAUTHORIZED:
        return Denied(f"the operator token was not accepted: {problem.message}", code=problem.code)
    if status in (httpx.codes.BAD_REQUEST, httpx.codes.UNPROCESSABLE_ENTITY):
        return UsageFault(problem.message, code=problem.code)
    return Denied(problem.message, code=problem.code, numbers=problem.numbers)


def _said(response: httpx.Response) -> str:
    try:
        return f", {Problem.model_validate_json(response.content).message}"
    except ValidationError:
        return ""
