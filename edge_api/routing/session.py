"""The session that a request belongs to, as a key for routing: scoped by team, equal for every turn, cheap.

What the client names wins: `prompt_cache_key`, `session_id`, then the session headers of known agents. Else it is a
digest of what stays the same while a conversation grows: the model and all messages before the first answer.
"""

from collections.abc import Mapping
from hashlib import blake2b

from edge_api.hot.fields import Fields

SESSION_HEADERS = (
    b"x-session-id", b"x-dynamo-session-id", b"session-id", b"session_id", b"x-claude-code-agent-id",
    b"x-claude-code-session-id",
)
_NAMES = frozenset(SESSION_HEADERS)
SAMPLE_BYTES = 1_024
MAX_OPENING_MESSAGES = 16


def session_key(headers: Mapping[bytes, bytes], fields: Fields, team_id: str) -> str:
    """The routing key, 32 hex digits whatever the client sent. `headers` has lower-case names."""
    name = _name(headers, fields)
    seed = b"%b\nnamed\n%b" % (team_id.encode(), name) if name else _opening(team_id, fields)
    return blake2b(seed, digest_size=16).hexdigest()


def _name(headers: Mapping[bytes, bytes], fields: Fields) -> bytes:
    """What the client calls the session, empty if nothing."""
    if name := fields.prompt_cache_key or fields.session_id:
        return name.encode()
    if _NAMES.isdisjoint(headers):
        return b""
    for header in SESSION_HEADERS:
        if value := headers.get(header):
            return value
    return b""


def _opening(team_id: str, fields: Fields) -> bytes:
    """The team, the model and the messages before the first answer; of a long one its length, head and tail.

    Inside JSON strings quotes are escaped, so `"assistant"` with bare quotes is the role or a whole string, not prose.
    One digest over one value: a call for each part cost more than the digest.
    """
    parts = [team_id.encode(), b"opening", fields.model.encode()]
    for raw in fields.opening[:MAX_OPENING_MESSAGES]:
        message = bytes(raw)
        if b'"assistant"' in message:
            break
        if len(message) > 2 * SAMPLE_BYTES:
            message = b"%d\n%b%b" % (len(message), message[:SAMPLE_BYTES], message[-SAMPLE_BYTES:])
        parts.append(message)
    return b"\n".join(parts)
