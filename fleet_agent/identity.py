"""Who this agent is: an Ed25519 key that it made itself, and the identity that the control plane gave it for a token.

Owns `agent.key` and `identity.json` (both 0600) in the state directory. Enrols once; a restart with the same files is
the same identity, and an answer lost on the way does no harm, because the same token with the same key is answered
again. A control plane that does not know this agent any more is enrolled with again, under the same key, as soon as
there is a token that was not used yet; the fleet serves on.
"""

import asyncio
from pathlib import Path

import structlog
from pydantic import ValidationError

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock
from control_plane.contracts.enrolment import EnrolAnswer, EnrolRequest, IdentityKind
from control_plane.contracts.signing import SigningKey, write_private
from control_plane.contracts.transport import ControlPlaneAway, ControlPlaneClient, SignatureAuth

ENROL_DEADLINE_S = 10.0
RETRY_S = 0.5
MAX_RETRY_S = 6.0

log = structlog.get_logger()


class StoredIdentity(EnrolAnswer):
    """The identity on disk, and the digest of the token that it was given for."""

    token_digest: str = ""


class CannotEnrol(Exception):
    """The agent has no identity and cannot get one; the message says what to do."""


def load_key(state_dir: Path) -> SigningKey:
    """This agent's private key, made at the first start."""
    return SigningKey.load_or_create(state_dir / "agent.key")


def load_identity(state_dir: Path) -> StoredIdentity | None:
    """The identity on disk, or None before enrolment.

    Raises:
        CannotEnrol: the file is damaged.
    """
    path = state_dir / "identity.json"
    if not path.exists():
        return None
    try:
        return StoredIdentity.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CannotEnrol(f"{path} is damaged; remove it and give the agent a new enrolment token") from error


class Renewal:
    """Enrols this agent again, for the fleet that it drives; each token is tried once."""

    def __init__(self, client: ControlPlaneClient, clock: Clock, urls: list[str], state_dir: Path, key: SigningKey,
                 token_file: Path | None) -> None:
        self._client, self._clock, self._urls = client, clock, urls
        self._state_dir, self._key, self._token_file = state_dir, key, token_file
        self._tried = ""

    async def __call__(self) -> bool:
        """Whether the client signs as a new identity now. Nothing is tried without a token not used before."""
        try:
            token, known = _read_token(self._token_file), load_identity(self._state_dir)
        except CannotEnrol:
            return False
        digest = ids.secret_digest(token)
        if known is None or digest in (self._tried, known.token_digest):
            return False
        request = EnrolRequest(token=token, kind=IdentityKind.AGENT, public_key=self._key.public.text)
        try:
            async with ControlPlaneClient(self._urls) as client:
                answer = await client.post("/enrol/v1", request.model_dump_json().encode(), ENROL_DEADLINE_S)
            identity = _keep(self._state_dir, answer.status_code, answer.content, digest, known.subject)
        except ControlPlaneAway as error:
            log.warning("enrolment_waits", error=str(error))
            return False
        except CannotEnrol as error:
            self._tried = digest
            log.error("enrolment_refused", error=str(error))
            return False
        self._client.sign_as(SignatureAuth(identity.identity, self._key, self._clock))
        log.info("enrolled", identity=identity.identity, fleet=identity.subject)
        return True


async def enrol(urls: list[str], state_dir: Path, key: SigningKey, token_file: Path | None) -> StoredIdentity:
    """The identity given for the token; asked for until the control plane answers.

    Raises:
        CannotEnrol: there is no token, or the control plane refuses it.
    """
    token = _read_token(token_file)
    request = EnrolRequest(token=token, kind=IdentityKind.AGENT, public_key=key.public.text)
    retry_s, is_told = RETRY_S, False
    async with ControlPlaneClient(urls) as client:
        while True:
            try:
                answer = await client.post("/enrol/v1", request.model_dump_json().encode(), ENROL_DEADLINE_S)
            except ControlPlaneAway as error:
                if not is_told:  # once: it may be away for days
                    log.warning("enrolment_waits", error=str(error))
                is_told = True
            else:
                if answer.status_code != 429:
                    return _keep(state_dir, answer.status_code, answer.content, ids.secret_digest(token))
            await asyncio.sleep(ids.jitter(retry_s))
            retry_s = min(2 * retry_s, MAX_RETRY_S)


def _read_token(token_file: Path | None) -> str:
    if token_file is None:
        raise CannotEnrol("this agent is not enrolled; set MERIDIAN_ENROLMENT_TOKEN_FILE to a file with its token")
    try:
        token = token_file.read_text().strip()
    except OSError as error:
        raise CannotEnrol(f"this agent is not enrolled and {token_file} cannot be read: {error.strerror}") from error
    if not ids.is_well_formed_secret(token):
        raise CannotEnrol(f"{token_file} holds no well-formed enrolment token")
    return token


def _keep(state_dir: Path, status: int, body: bytes, token_digest: str, fleet_id: str | None = None) -> StoredIdentity:
    if status != 200:
        raise CannotEnrol(f"the control plane refused the enrolment token with HTTP {status}; give the agent a new one")
    try:
        answer = EnrolAnswer.model_validate_json(body)
    except ValidationError as error:
        raise CannotEnrol("the control plane answered the enrolment with something else than an identity") from error
    if fleet_id not in (None, answer.subject):
        raise CannotEnrol(f"the enrolment token is for fleet {answer.subject}, and this agent drives {fleet_id}")
    identity = StoredIdentity(**answer.model_dump(), token_digest=token_digest)
    write_private(state_dir / "identity.json", identity.model_dump_json().encode())
    return identity
