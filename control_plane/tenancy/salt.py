"""A team's cache salt: what keeps its cached prefixes apart from every other team's. Pure.

It is the same on every replica, edge and engine, and nobody outside can make it: the secret behind it is a signature
of the key that all replicas share. Ed25519 signatures are deterministic (RFC 8032), and nothing else that is signed
with that key begins like this one.
"""

import base64
import hashlib
import hmac

from control_plane.contracts.signing import SigningKey

PURPOSE = b"meridian-cache-salt-v1"


def cache_salt(key: SigningKey, team_id: str) -> str:
    """43 url-safe characters. The team's id goes in with its length, so that no two teams can ever be read as one."""
    secret = hashlib.sha256(key.sign(PURPOSE)).digest()
    name = team_id.encode()
    digest = hmac.digest(secret, len(name).to_bytes(4, "big") + name, "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
