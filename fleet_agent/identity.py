"""Who this agent is: an Ed25519 key that it made itself, and the identity that the control plane gave it for a token.

Owns `agent.key` and `identity.json` (both 0600) in the state directory. Enrols once; a restart with the same files is
the same identity, and an answer lost on the way does no harm, because the same token with the same key is answered
again.
"""

import asyncio
from pathlib import Path

import structlog
from pydantic import ValidationError

from control_plane.contracts import ids
from control_plane.contracts.enrolment import EnrolAnswer, EnrolRequest, IdentityKind
from control_plane.contracts.signing import SigningKey, write_private
from control_plane.contracts.transport import ControlPlaneAway, ControlPlaneClient

ENROL_DEADLINE_S = 10.0
RETRY_S = 0.5
MAX_RETRY_S = 30.0

log = structlog.get_logger()


class CannotEnrol(Exception):
    """The agent has no identity and cannot get one; the message says what to do."""


def load_key(state_dir: Path) -> SigningKey:
    """This agent's private key, made at the first start."""
    return SigningKey.load_or_create(state_dir / "agent.key")


def load_identity(state_dir: Path) -> EnrolAnswer | None:
    """The identity on disk, or None before enrolment.

    Raises:
        CannotEnrol: the file is damaged.
    """
    path = state_dir / "identity.json"
    if not path.exists():
        return None
    try:
        return EnrolAnswer.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CannotEnrol(f"{path} is damaged; remove it and give the agent a new enrolment token") from error


async def enrol(urls: list[str], state_dir: Path, key: SigningKey, token_file: Path | None) -> EnrolAnswer:
    """The identity given for the token; asked for until the control plane answers.

    Raises:
        CannotEnrol: there is no token, or the control plane refuses it.
    """
    token = _read_token(token_file)
    request = EnrolRequest(token=token, kind=IdentityKind.AGENT, public_key=key.public.text)
    retry_s = RETRY_S
    async with ControlPlaneClient(urls) as client:
        while True:
            try:
                answer = await client.post("/enrol/v1", request.model_dump_json().encode(), ENROL_DEADLINE_S)
            except ControlPlaneAway as error:
                log.warning("the control plane is away; enrolment waits", error=str(error))
            else:
                if answer.status_code != 429:
                    return _keep(state_dir, answer.status_code, answer.content)
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


def _keep(state_dir: Path, status: int, body: bytes) -> EnrolAnswer:
    if status != 200:
        raise CannotEnrol(f"the control plane refused the enrolment token with HTTP {status}; give the agent a new one")
    try:
        identity = EnrolAnswer.model_validate_json(body)
    except ValidationError as error:
        raise CannotEnrol("the control plane answered the enrolment with something else than an identity") from error
    write_private(state_dir / "identity.json", identity.model_dump_json().encode())
    return identity
