"""Ed25519 identities: who signed a request or a snapshot, and whether it is whole.

A signed request carries four headers; the signature covers method, path with query, time, nonce and the body's
SHA-256, so nothing of it can be changed or sent elsewhere. Source of the scheme: RFC 8032 for the algorithm, the
canonical form is ours.
"""

import base64
import hashlib
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock

IDENTITY_HEADER = "x-meridian-identity"
TIME_HEADER = "x-meridian-time"
NONCE_HEADER = "x-meridian-nonce"
SIGNATURE_HEADER = "x-meridian-signature"

MAX_AGE_S = 60.0
MAX_NONCES = 100_000


class NotSigned(Exception):
    """The request carries no complete signature."""


class BadSignature(Exception):
    """The signature does not fit the request, its time or its nonce."""


class SigningKey:
    """A private Ed25519 key. It never leaves the process, or the 0600 file that it was loaded from."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = VerifyKey(private.public_key())

    @classmethod
    def generate(cls) -> "SigningKey":
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load_or_create(cls, path: Path) -> "SigningKey":
        """The key in the file (32 raw bytes, mode 0600), made if there is none."""
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = Ed25519PrivateKey.generate().private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
            write_private(path, fresh)
        return cls(Ed25519PrivateKey.from_private_bytes(path.read_bytes()))

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)


class VerifyKey:
    """A public Ed25519 key; `key_id` is the first 16 hex digits of its SHA-256."""

    def __init__(self, public: Ed25519PublicKey) -> None:
        self._public = public
        self.raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.key_id = hashlib.sha256(self.raw).hexdigest()[:16]

    @classmethod
    def from_text(cls, text: str) -> "VerifyKey":
        """The key in url-safe base64.

        Raises:
            ValueError: the text is no key.
        """
        return cls(Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(text)))

    @property
    def text(self) -> str:
        return base64.urlsafe_b64encode(self.raw).decode()

    def verify(self, message: bytes, signature: bytes) -> bool:
        try:
            self._public.verify(signature, message)
        except InvalidSignature:
            return False
        return True


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only this user may read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{ids.nonce()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The parts of an HTTP request that a signature covers. `target` is the path with its query."""

    method: str
    target: str
    body: bytes

    def message(self, identity: str, time_s: str, nonce: str) -> bytes:
        digest = hashlib.sha256(self.body).hexdigest()
        return "\n".join(("meridian-request-v1", self.method, self.target, identity, time_s, nonce, digest)).encode()

    def sign(self, identity: str, key: SigningKey, clock: Clock) -> dict[str, str]:
        """The headers that prove who sent this."""
        time_s, nonce = f"{clock.time_s():.3f}", ids.nonce()
        signature = key.sign(self.message(identity, time_s, nonce))
        return {
            IDENTITY_HEADER: identity,
            TIME_HEADER: time_s,
            NONCE_HEADER: nonce,
            SIGNATURE_HEADER: base64.urlsafe_b64encode(signature).decode(),
        }

    def check(self, headers: Mapping[str, str], key: VerifyKey, clock: Clock, nonces: "Nonces") -> None:
        """Verifies who sent this.

        Raises:
            BadSignature: wrong key, changed request, a time more than 60 s away, or a nonce seen before.
        """
        identity, time_s, nonce, signature = _signature_headers(headers)
        try:
            age_s = abs(clock.time_s() - float(time_s))
            raw = base64.urlsafe_b64decode(signature)
        except ValueError as error:
            raise BadSignature("the signature headers are malformed") from error
        if not age_s <= MAX_AGE_S:  # so that "nan" is refused, too
            raise BadSignature(f"the request was signed {age_s:.0f} s away from this clock; at most {MAX_AGE_S:.0f} s")
        if not key.verify(self.message(identity, time_s, nonce), raw):
            raise BadSignature("the signature does not fit the request")
        if not nonces.is_first(f"{identity}:{nonce}"):
            raise BadSignature("the nonce was used before")


def claimed_identity(headers: Mapping[str, str]) -> str:
    """Who the request says it is from; believed only after `SignedRequest.check`.

    Raises:
        NotSigned: a signature header is missing.
    """
    return _signature_headers(headers)[0]


def _signature_headers(headers: Mapping[str, str]) -> tuple[str, str, str, str]:
    found = tuple(headers.get(name, "") for name in (IDENTITY_HEADER, TIME_HEADER, NONCE_HEADER, SIGNATURE_HEADER))
    if not all(found):
        raise NotSigned("the request is not signed")
    return found[0], found[1], found[2], found[3]


class Nonces:
    """The nonces of the last minutes, bounded. Its memory is one process's: every signed route is idempotent, so a
    replay inside 60 s against another replica repeats what was done already."""

    def __init__(self, limit: int = MAX_NONCES) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._limit = limit

    def is_first(self, nonce: str) -> bool:
        if nonce in self._seen:
            return False
        self._seen[nonce] = None
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)
        return True
