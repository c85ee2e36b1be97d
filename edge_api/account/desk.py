"""Who asks about an account, and what the control plane answers: each question with a deadline, and few at once.

While the control plane is away nobody can say what was used: 503, quickly, with a time to try again. A key that is
cached is still known, so nobody is told that it is wrong.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import quote
from uuid import UUID

import httpx
import structlog
from pydantic import BaseModel, ValidationError

from control_plane.contracts import ids
from control_plane.contracts.account import Generation, KeyAccount, TeamCredits
from control_plane.contracts.clock import Clock
from control_plane.contracts.keys import Principal
from control_plane.contracts.transport import ControlPlaneAway
from edge_api import errors
from edge_api.errors import Refusal
from edge_api.hot.services import KeyDirectoryAway, Keyring, TooManyUnknownKeys
from edge_api.identity import ControlPlaneLink
from edge_api.secret import secret_of

DEADLINE_S = 2.0
REPLICA_DEADLINE_S = 1.0
MAX_ASKED = 64
MAX_OF_A_TEAM = 16
SOON_S = 60.0

log = structlog.get_logger()

Answer = TypeVar("Answer", bound=BaseModel)


class AccountDesk:
    """Owns how many questions of each team are under way. `client_address` tells a client's address, of the peer's and
    of the `X-Forwarded-For` that it sent."""

    def __init__(self, keyring: Keyring, link: ControlPlaneLink, clock: Clock,
                 client_address: Callable[[str, bytes], str]) -> None:
        self._keyring, self._link, self._clock = keyring, link, clock
        self._client_address = client_address
        self._asked: Counter[str] = Counter()

    async def principal(self, headers: Mapping[str, str], peer: str, forwarded_for: str = "") -> Principal:
        """Whom the request's key speaks for. `forwarded_for` is the last header of that name, for a proxy that writes
        one of its own leaves the client's before it.

        Raises:
            Refusal: no key, a wrong one, one of another team than the client names, or one that nobody can check now.
        """
        authorization = headers.get("authorization")
        secret = secret_of(None if authorization is None else authorization.encode(),
                           headers.get("x-api-key", "").encode()).decode()
        if not ids.is_well_formed_secret(secret):
            raise Refusal(errors.INVALID_API_KEY, "the API key is not one of ours: it is mistyped or cut off")
        try:
            principal = await self._keyring.find(
                ids.secret_digest(secret), self._client_address(peer, forwarded_for.encode("latin-1")))
        except KeyDirectoryAway:
            raise Refusal(errors.KEY_CHECK_UNAVAILABLE, "the key cannot be checked at the moment") from None
        except TooManyUnknownKeys:
            raise Refusal(errors.RATE_LIMITED, "too many unknown API keys from this address") from None
        if principal is None:
            raise Refusal(errors.INVALID_API_KEY, "the API key is unknown, revoked or expired")
        if headers.get("x-prime-team-id", principal.team_id) != principal.team_id:
            raise Refusal(errors.TEAM_MISMATCH, "this API key belongs to another team than X-Prime-Team-ID names")
        return principal

    async def key(self, principal: Principal) -> KeyAccount:
        """The key's account.

        Raises:
            Refusal: the control plane is away, or knows the key no more.
        """
        found = await self._ask(f"/edge/v1/keys/{quote(principal.key_id, safe='')}/account", KeyAccount, principal)
        if found is None:
            raise Refusal(errors.INVALID_API_KEY, "the API key is unknown, revoked or expired")
        return found

    async def credits(self, principal: Principal) -> TeamCredits:
        """The team's credits.

        Raises:
            Refusal: the control plane is away, or knows the team no more.
        """
        found = await self._ask(f"/edge/v1/teams/{quote(principal.team_id, safe='')}/credits", TeamCredits, principal)
        if found is None:
            raise Refusal(errors.INVALID_API_KEY, "the API key is unknown, revoked or expired")
        return found

    async def generation(self, principal: Principal, request_id: UUID) -> Generation:
        """One request of the team.

        Raises:
            Refusal: the control plane is away; or there is no such record, perhaps not yet, which the client is told.
        """
        team = quote(principal.team_id, safe="")
        found = await self._ask(f"/edge/v1/teams/{team}/generations/{request_id}", Generation, principal)
        if found is not None:
            return found
        if abs(self._clock.time_s() - ids.uuid7_time_s(request_id)) < SOON_S:
            raise Refusal(errors.GENERATION_NOT_YET, "there is no record of this generation yet; ask again in a second",
                          "id", retry_after_s=1.0)
        raise Refusal(errors.GENERATION_NOT_FOUND, "there is no such generation", "id")

    async def _ask(self, path: str, kind: type[Answer], principal: Principal) -> Answer | None:
        """The answer; none if the control plane knows of no such thing."""
        team_id = principal.team_id
        if self._asked[team_id] >= MAX_OF_A_TEAM:
            raise Refusal(errors.RATE_LIMITED, f"{MAX_OF_A_TEAM} questions of this team are being answered")
        if self._asked.total() >= MAX_ASKED:
            raise Refusal(errors.ACCOUNT_UNAVAILABLE, "too many questions about accounts at once")
        self._asked[team_id] += 1
        try:
            async with asyncio.timeout(DEADLINE_S):
                answer = await self._link.get(path, REPLICA_DEADLINE_S)
            if answer.status_code == httpx.codes.NOT_FOUND:
                return None
            if answer.status_code == httpx.codes.OK:
                return kind.model_validate_json(answer.content)
        except (ControlPlaneAway, TimeoutError, ValidationError) as error:
            log.warning("account_unavailable", error=type(error).__name__)
        else:
            log.warning("account_unavailable", status=answer.status_code)
        finally:
            self._asked[team_id] -= 1
            if not self._asked[team_id]:
                del self._asked[team_id]
        raise Refusal(errors.ACCOUNT_UNAVAILABLE, "accounts cannot be looked up at the moment")
