"""How agents and edges reach the control plane: signed, with a deadline, on whichever replica answers."""

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

import httpx
from pydantic import ValidationError

from control_plane.contracts.clock import Clock
from control_plane.contracts.enrolment import UNKNOWN_IDENTITY
from control_plane.contracts.signing import SignedRequest, SigningKey
from control_plane.contracts.wire import Wire

CONNECT_S = 3.0


class ControlPlaneAway(Exception):
    """No replica of the control plane answered in time."""


class IdentityUnknown(ControlPlaneAway):
    """It answers and does not know who asks: the identity was revoked, or its database is not the one that enrolled
    it. What works without the control plane goes on; only a new enrolment mends it."""

    def __init__(self) -> None:
        super().__init__("the control plane does not know this identity; it was revoked, or the control plane's "
                         "database was replaced: put a new enrolment token into MERIDIAN_ENROLMENT_TOKEN_FILE")


class _Refusal(Wire):
    """The part of a Problem that says which."""

    code: str = ""


class SignatureAuth(httpx.Auth):
    """Signs each request as `identity`."""

    requires_request_body = True

    def __init__(self, identity: str, key: SigningKey, clock: Clock) -> None:
        self._identity, self._key, self._clock = identity, key, clock

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        signed = SignedRequest(request.method, request.url.raw_path.decode(), request.content)
        request.headers.update(signed.sign(self._identity, self._key, self._clock))
        yield request


class ControlPlaneClient:
    """A client of all replicas. It stays with the one that answered last and turns to the next when that one fails."""

    def __init__(self, urls: list[str], auth: httpx.Auth | None = None) -> None:
        self._urls = list(urls)
        self._client = httpx.AsyncClient(auth=auth, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._client.aclose()

    def sign_as(self, auth: httpx.Auth) -> None:
        """Signs so from the next request on; those under way are not disturbed."""
        self._client.auth = auth

    async def post(self, path: str, content: bytes, deadline_s: float) -> httpx.Response:
        """The answer of the first replica that gives one below 500.

        Raises:
            ControlPlaneAway: none did, each within `deadline_s`.
            IdentityUnknown: one did, and does not know who asks.
        """
        return await self._ask("POST", path, content, deadline_s)

    async def get(self, path: str, deadline_s: float) -> httpx.Response:
        """As `post`, for what only reads."""
        return await self._ask("GET", path, b"", deadline_s)

    async def _ask(self, method: str, path: str, content: bytes, deadline_s: float) -> httpx.Response:
        faults = []
        for url in list(self._urls):
            try:
                async with asyncio.timeout(deadline_s):  # httpx's own limit is for each read, not for the answer
                    answer = await self._client.request(
                        method, url + path, content=content, headers={"content-type": "application/json"},
                        timeout=httpx.Timeout(deadline_s, connect=min(CONNECT_S, deadline_s)))
            except (httpx.HTTPError, TimeoutError) as error:
                faults.append(f"{url}: {type(error).__name__}")
            else:
                if answer.status_code < 500:
                    _check_identity(answer)
                    return answer
                faults.append(f"{url}: HTTP {answer.status_code}")
            self._urls.append(self._urls.pop(self._urls.index(url)))
        raise ControlPlaneAway("; ".join(faults))


def _check_identity(answer: httpx.Response) -> None:
    if answer.status_code != httpx.codes.UNAUTHORIZED:
        return
    try:
        refusal = _Refusal.model_validate_json(answer.content)
    except ValidationError:
        return
    if refusal.code == UNKNOWN_IDENTITY:
        raise IdentityUnknown
