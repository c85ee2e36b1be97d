"""How agents and edges reach the control plane: signed, with a deadline, on whichever replica answers."""

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

import httpx

from control_plane.contracts.clock import Clock
from control_plane.contracts.signing import SignedRequest, SigningKey

CONNECT_S = 3.0


class ControlPlaneAway(Exception):
    """No replica of the control plane answered in time."""


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

    async def post(self, path: str, content: bytes, deadline_s: float) -> httpx.Response:
        """The answer of the first replica that gives one below 500.

        Raises:
            ControlPlaneAway: none did, each within `deadline_s`.
        """
        faults = []
        for url in list(self._urls):
            try:
                async with asyncio.timeout(deadline_s):  # httpx's own limit is for each read, not for the answer
                    answer = await self._client.post(
                        url + path, content=content, headers={"content-type": "application/json"},
                        timeout=httpx.Timeout(deadline_s, connect=min(CONNECT_S, deadline_s)))
            except (httpx.HTTPError, TimeoutError) as error:
                faults.append(f"{url}: {type(error).__name__}")
            else:
                if answer.status_code < 500:
                    return answer
                faults.append(f"{url}: HTTP {answer.status_code}")
            self._urls.append(self._urls.pop(self._urls.index(url)))
        raise ControlPlaneAway("; ".join(faults))
