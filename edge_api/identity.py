"""Who this edge is: enrolled once with a one-time token, remembered on disk, proved by a signature ever after.

Once enrolled, a restart needs nothing from above: the key, the identity's name and the control plane's own keys lie in
the state directory. Until then the link upwards is away and says why. A control plane that does not know this edge any
more is enrolled with again, under the same key, as soon as there is a token that was not used yet; the edge serves on.
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


class StoredIdentity(EnrolAnswer):
    """The identity on disk, and the digest of the token that it was given for."""

    token_digest: str = ""


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
        auth = SignatureAuth(identity.name, identity.key, self._clock)
        if self._client is None:
            self._client = ControlPlaneClient(self._urls, auth)
        else:
            self._client.sign_as(auth)

    async def post(self, path: str, content: bytes, deadline_s: float) -> httpx.Response:
        """The answer of the first replica that gives one below 500.

        Raises:
            ControlPlaneAway: none did, or this edge is not enrolled yet.
        """
        if self._client is None:
            raise ControlPlaneAway(self.problem)
        return await self._client.post(path, content, deadline_s)

    async def get(self, path: str, deadline_s: float) -> httpx.Response:
        """As `post`, for what only reads."""
        if self._client is None:
            raise ControlPlaneAway(self.problem)
        return await self._client.get(path, deadline_s)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def load(state_dir: Path) -> Identity | None:
    """The identity of an earlier start, if there was one.

    Raises:
        ValueError: the file is there and unreadable.
    """
    stored = _stored(state_dir)
    return None if stored is None else _identity(stored, _key(state_dir))


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


class Renewal:
    """Enrols this edge again with the key that it has; each token is tried once."""

    def __init__(self, link: ControlPlaneLink, state_dir: Path, token_file: Path | None, urls: list[str]) -> None:
        self._link, self._state_dir, self._token_file, self._urls = link, state_dir, token_file, urls
        self._tried = ""

    async def __call__(self) -> bool:
        """Whether this edge has a new identity. Nothing is tried without a token that was not used before."""
        digest = ""
        try:
            digest = ids.secret_digest(_token(self._token_file))
            stored = _stored(self._state_dir)
            if stored is None or digest in (self._tried, stored.token_digest):
                return False
            async with ControlPlaneClient(self._urls) as client:
                self._link.use(await enrol(client, self._state_dir, self._token_file, stored.control_plane_keys))
        except EnrolmentRefused as error:
            if digest != self._tried:
                log.error("enrolment_failed", error=str(error))
            self._tried = digest
            return False
        except (ControlPlaneAway, OSError, ValueError) as error:
            log.warning("enrolment_failed", error=str(error))
            return False
        return True


async def enrol(client: ControlPlaneClient, state_dir: Path, token_file: Path | None,
                pinned: list[ControlPlaneKey] | None = None) -> Identity:
    """Spends the token for an identity and remembers it. With `pinned` those stay the keys that snapshots must be
    signed with, whatever the answer says: who only claims to be the control plane cannot change them.

    Raises:
        EnrolmentRefused: no token, or one that the control plane does not take.
        ControlPlaneAway: nobody answered.
    """
    key = _key(state_dir)
    token = _token(token_file)
    request = EnrolRequest(token=token, kind=IdentityKind.EDGE, public_key=key.public.text)
    answer = await client.post(PATH, request.model_dump_json().encode(), DEADLINE_S)
    if answer.status_code != httpx.codes.OK:
        raise EnrolmentRefused(f"the control plane refused the enrolment token (HTTP {answer.status_code})")
    try:
        answered = EnrolAnswer.model_validate_json(answer.content)
        enrolled = StoredIdentity(
            identity=answered.identity, subject=answered.subject, token_digest=ids.secret_digest(token),
            control_plane_keys=answered.control_plane_keys if pinned is None else pinned)
        identity = _identity(enrolled, key)
    except ValueError as error:
        raise ControlPlaneAway("an answer that is no EnrolAnswer") from error
    await asyncio.to_thread(write_private, _path(state_dir), enrolled.model_dump_json().encode())
    log.info("enrolled", identity=identity.name, region=identity.region)
    return identity


def _stored(state_dir: Path) -> StoredIdentity | None:
    path = _path(state_dir)
    if not path.exists():
        return None
    try:
        return StoredIdentity.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{path} is damaged; remove it and enrol again with a new token") from error


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
