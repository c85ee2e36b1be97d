"""The only place that makes identifiers, secrets and their digests.

Secrets look like ``sk_meridian_local_<32 base62><6 base62 CRC32>``: a prefix that scanners recognise, no character
that a double click stops at, about 190 bits, and a checksum that tells a typo from a stranger without a look-up.
"""

import hashlib
import os
import secrets
import time
import uuid
import zlib
from datetime import UTC, date, datetime

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SECRET_LENGTH = 32
CHECKSUM_LENGTH = 6
_VERSION_AND_VARIANT = 0x7 << 76 | 0x2 << 62
_set = object.__setattr__
_NOISE = (1 << 80) - 1 & ~(0xF << 76 | 0x3 << 62)


def uuid7(time_s: float | None = None) -> uuid.UUID:
    """A UUID of version 7 (RFC 9562): 48 bits of Unix milliseconds, then random bits; sorts by time."""
    ms = int((time.time() if time_s is None else time_s) * 1000)
    noise = int.from_bytes(os.urandom(10), "big") & _NOISE | _VERSION_AND_VARIANT
    made = uuid.UUID.__new__(uuid.UUID)  # its own checks of what is right by construction cost more than all of this
    _set(made, "int", (ms & 0xFFFF_FFFF_FFFF) << 80 | noise)
    _set(made, "is_safe", uuid.SafeUUID.unknown)
    return made


def uuid7_time_s(value: uuid.UUID) -> float:
    """The Unix time inside a version-7 UUID, in seconds."""
    return (value.int >> 80) / 1000


def uuid7_day(value: uuid.UUID) -> date:
    """The UTC day inside a version-7 UUID: it fixes a usage record's partition, whenever the record arrives."""
    return datetime.fromtimestamp(uuid7_time_s(value), UTC).date()


def new_id(prefix: str) -> str:
    """An identifier such as ``team_019ac…``: sortable by time, readable by people."""
    return f"{prefix}_{uuid7().hex}"


def nonce() -> str:
    """A value that is never used twice."""
    return secrets.token_urlsafe(12)


def jitter(base_s: float, share: float = 0.2) -> float:
    """`base_s`, moved by at most `share` of itself either way, so that many callers do not move in step."""
    return base_s * (1 + share * (2 * secrets.randbelow(1_000_001) / 1_000_000 - 1))


def new_secret(prefix: str) -> str:
    """A new secret under `prefix`, for example ``sk_meridian_local``."""
    body = "".join(secrets.choice(BASE62) for _ in range(SECRET_LENGTH))
    return f"{prefix}_{body}{_checksum(prefix, body)}"


def is_well_formed_secret(secret: str) -> bool:
    """Whether the checksum fits; says nothing about whether anybody issued it."""
    prefix, _, tail = secret.rpartition("_")
    body, checksum = tail[:SECRET_LENGTH], tail[SECRET_LENGTH:]
    return len(tail) == SECRET_LENGTH + CHECKSUM_LENGTH and checksum == _checksum(prefix, body)


def secret_digest(secret: str | bytes) -> str:
    """What is stored and compared instead of a secret: SHA-256 in hex.

    No salt and no stretching: a secret has about 190 bits, so there is nothing to guess.
    """
    return hashlib.sha256(secret if isinstance(secret, bytes) else secret.encode("utf-8", "surrogatepass")).hexdigest()


def secret_hint(secret: str) -> str:
    """What may be shown of a secret for ever after: its prefix and last four characters."""
    prefix, _, tail = secret.rpartition("_")
    return f"{prefix}_…{tail[-4:]}"


def _checksum(prefix: str, body: str) -> str:
    value, digits = zlib.crc32(f"{prefix}_{body}".encode()), ""
    for _ in range(CHECKSUM_LENGTH):
        value, digit = divmod(value, 62)
        digits = BASE62[digit] + digits
    return digits
