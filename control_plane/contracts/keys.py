"""API keys as the edge sees them: a digest in, a principal out, and revocations as a delta stream."""

from enum import StrEnum

from control_plane.contracts.wire import Wire


class Scope(StrEnum):
    """What an API key may do."""

    INFERENCE = "inference"
    USAGE_READ = "usage:read"


class KeyLookup(Wire):
    """`POST /edge/v1/keys/lookup`: the SHA-256 of a key in hex, never the key."""

    digest: str


class Principal(Wire):
    """Whom a key speaks for. 404 instead of it means that nobody issued the key, or that it was revoked or expired.

    `expires_at_s` is a Unix time; `always_usage` asks for the usage chunk on every stream.
    """

    key_id: str
    team_id: str
    key_name: str
    scopes: list[Scope]
    always_usage: bool = False
    expires_at_s: float | None = None


class Revocation(Wire):
    """A key that must not be served any more. `seq` grows by commit order and is where the next poll resumes."""

    seq: int
    digest: str
