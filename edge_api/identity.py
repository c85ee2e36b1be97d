"""Who this edge is: enrolled once with a one-time token, remembered on disk, proved by a signature ever after.

Once enrolled, a restart needs nothing from above: the key, the identity's name and the control plane's own keys lie in
the state directory. Until then the link upwards is away and says why.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import httpx
import structlog
from pydantic import ValidationError

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock
from control_plane.contracts.enrolment import ControlPlaneKey, EnrolAnswer, EnrolRequest, IdentityKind
from control_plane.contracts.signing import SigningKey, VerifyKey, write_private
from control_plane.contracts.transport import ControlPlaneAway, ControlPlaneClient, SignatureAuth

PATH = "/enrol/v1"
DEADLINE_S = 10.0
FIRST_BACKOFF_S = 0.25
LONGEST_BACKOFF_S = 10.0

log = structlog.get_logger()


class EnrolmentRefused(Exception):
    """The control plane did not accept the token, or there is none; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    """`name` is what requests are signed as, `region` where this edge stands."""

    name: str
    region: str
    key: SigningKey
    control_plane_keys: list[VerifyKey]


class ControlPlaneLink:
    """The signed way up, over all replicas. Without an identity nothing gets through: `ControlPlaneAway`."""

    def __init__(self, urls: list[str], clock: Clock) -> None:
        self._urls, self._clock = urls, clock
        self._client: ControlPlaneClient | None = None
        self.identity: Identity | None = None
        self.problem = "not enrolled yet"

    def use(self, identity: Identity) -> None:
        """Signs as `identity` from now on."""
        self.identity, self.problem = identity, ""
        self._client = ControlPlaneClient(self._urls, SignatureAuth(identity.name, identity.key, self._clock))

    async def post(self, path: str, content: bytes, deadline_s: float) -> httpx.Response:
        """The answer of the first replica that gives one below 500.

        Raises:
            ControlPlaneAway: none did, or this edge is not enrolled yet.
        """
        if self._client is None:
            raise ControlPlaneAway(self.problem)
        return await self._client.post(path, content, deadline_s)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def load(state_dir: Path) -> Identity | None:
    """The identity of an earlier start, if there was one.

    Raises:
        ValueError: the file is there and unreadable.
    """
    path = _path(state_dir)
    if not path.exists():
        return None
    try:
        return _identity(EnrolAnswer.model_validate_json(path.read_bytes()), _key(state_dir))
    except ValidationError as error:
        raise ValueError(f"{path} is damaged; remove it and enrol again with a new token") from error


async def enrol_until_done(link: ControlPlaneLink, state_dir: Path, token_file: Path | None, urls: list[str]) -> None:
    """Gets this edge its identity, however long the control plane is away; `link.problem` says what is in the way."""
    backoff_s = FIRST_BACKOFF_S
    async with ControlPlaneClient(urls) as client:
        while True:
            try:
                link.use(await enrol(client, state_dir, token_file))
            except (ControlPlaneAway, EnrolmentRefused) as error:
                link.problem = f"not enrolled yet: {error}"
                log.warning("enrolment_failed", error=str(error), retry_s=backoff_s)
                await asyncio.sleep(ids.jitter(backoff_s))
                backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)
            else:
                return


async def enrol(client: ControlPlaneClient, state_dir: Path, token_file: Path | None) -> Identity:
    """Spends the token for an identity and remembers it.

    Raises:
        EnrolmentRefused: no token, or one that the control plane does not take.
        ControlPlaneAway: nobody answered.
    """
    key = _key(state_dir)
    request = EnrolRequest(token=_token(token_file), kind=IdentityKind.EDGE, public_key=key.public.text)
    answer = await client.post(PATH, request.model_dump_json().encode(), DEADLINE_S)
    if answer.status_code != httpx.codes.OK:
        raise EnrolmentRefused(f"the control plane refused the enrolment token (HTTP {answer.status_code})")
    try:
        enrolled = EnrolAnswer.model_validate_json(answer.content)
        identity = _identity(enrolled, key)
    except ValueError as error:
        raise ControlPlaneAway("an answer that is no EnrolAnswer") from error
    await asyncio.to_thread(write_private, _path(state_dir), enrolled.model_dump_json().encode())
    log.info("enrolled", identity=identity.name, region=identity.region)
    return identity


def _token(token_file: Path | None) -> str:
    if token_file is None:
        raise EnrolmentRefused("set MERIDIAN_ENROLMENT_TOKEN_FILE to a file with an edge's enrolment token")
    try:
        return token_file.read_text().strip()
    except OSError as error:
        raise EnrolmentRefused(f"cannot read the enrolment token: {error.strerror}: {token_file}") from error


def _identity(answer: EnrolAnswer, key: SigningKey) -> Identity:
    return Identity(answer.identity, answer.subject, key, [_pinned(k) for k in answer.control_plane_keys])


def _pinned(key: ControlPlaneKey) -> VerifyKey:
    return VerifyKey.from_text(key.public_key)


def _key(state_dir: Path) -> SigningKey:
    return SigningKey.load_or_create(state_dir / "identity.key")


def _path(state_dir: Path) -> Path:
    return state_dir / "identity.json"
