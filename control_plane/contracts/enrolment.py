"""How an agent or an edge gets its identity: a one-time token and a public key against an identity.

`POST /enrol/v1` is the only unsigned machine route. The token is spent by the first success; the same token with the
same public key answers the same identity again, so that a lost answer does no harm.
"""

from enum import StrEnum

from control_plane.contracts.wire import Wire

UNKNOWN_IDENTITY = "unknown_identity"
"""The code of the 401 that a machine gets when the control plane has no such identity, or has revoked it."""


class IdentityKind(StrEnum):
    """What a machine identity may do: an agent syncs its fleet, an edge routes, looks keys up and ships usage."""

    AGENT = "agent"
    EDGE = "edge"


class EnrolRequest(Wire):
    """`public_key` is url-safe base64 of 32 raw Ed25519 bytes."""

    token: str
    kind: IdentityKind
    public_key: str


class ControlPlaneKey(Wire):
    """A key that snapshots may be signed with."""

    key_id: str
    public_key: str


class EnrolAnswer(Wire):
    """`subject` is what the identity speaks for: a fleet id for an agent, a region id for an edge."""

    identity: str
    subject: str
    control_plane_keys: list[ControlPlaneKey]
