"""The session that a request belongs to, as a key for routing: scoped by team, equal for every turn, cheap.

What the client names wins: `prompt_cache_key`, `session_id`, then the session headers of known agents. Else it is a
digest of what stays the same while a conversation grows: the model, the tools and all messages before the first answer.
"""

from collections.abc import Mapping
from hashlib import blake2b

from edge_api.hot.fields import ChatFields, Fields

SESSION_HEADERS = (
    b"x-session-id", b"x-dynamo-session-id", b"session-id", b"session_id", b"x-claude-code-agent-id",
    b"x-claude-code-session-id",
)
PARENT_HEADERS = (b"x-parent-session-id", b"x-dynamo-parent-session-id", b"x-claude-code-parent-agent-id")
_SESSION_NAMES, _PARENT_NAMES = frozenset(SESSION_HEADERS), frozenset(PARENT_HEADERS)
SAMPLE_BYTES = 1_024
MAX_OPENING_MESSAGES = 16


def session_key(headers: Mapping[bytes, bytes], fields: Fields, team_id: str) -> str:
    """The routing key, 32 hex digits whatever the client sent. `headers` has lower-case names."""
    name = (fields.prompt_cache_key or fields.session_id or "").encode()
    if not name and not _SESSION_NAMES.isdisjoint(headers):
        name = _first(headers, SESSION_HEADERS)
    return _digest(_named(team_id, name) if name else _opening(team_id, fields))


def parent_key(headers: Mapping[bytes, bytes], team_id: str) -> str:
    """The key of the session that this one is a part of, as an agent's helper is; empty if it is of none. It is the key
    that a session of that name has itself."""
    if _PARENT_NAMES.isdisjoint(headers):
        return ""
    name = _first(headers, PARENT_HEADERS)
    return _digest(_named(team_id, name)) if name else ""


def _first(headers: Mapping[bytes, bytes], names: tuple[bytes, ...]) -> bytes:
    """The first of these headers that says something, or nothing."""
    return next((value for name in names if (value := headers.get(name))), b"")


def _digest(seed: bytes) -> str:
    return blake2b(seed, digest_size=16).hexdigest()


def _named(team_id: str, name: bytes) -> bytes:
    return b"%b\nnamed\n%b" % (team_id.encode(), name)


def _opening(team_id: str, fields: Fields) -> bytes:
    """The team, the model, the tools and the messages before the first answer.

    Inside JSON strings quotes are escaped, so `"assistant"` with bare quotes is the role or a whole string, not prose.
    One digest over one value: a call for each part cost more than the digest.
    """
    parts = [team_id.encode(), b"opening", fields.model.encode()]
    if isinstance(fields, ChatFields) and fields.tools:
        tools = fields.tools
        parts += (b"%d tools" % len(tools), _sample(bytes(tools[0])), _sample(bytes(tools[-1])))
    for raw in fields.opening[:MAX_OPENING_MESSAGES]:
        message = bytes(raw)
        if message.find(b'"assistant"') >= 0:
            break
        parts.append(_sample(message) if len(message) > 2 * SAMPLE_BYTES else message)
    return b"\n".join(parts)


def _sample(value: bytes) -> bytes:
    """All of a short value; of a long one its length, head and tail."""
    if len(value) > 2 * SAMPLE_BYTES:
        return b"%d\n%b%b" % (len(value), value[:SAMPLE_BYTES], value[-SAMPLE_BYTES:])
    return value
