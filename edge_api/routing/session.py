"""The session that a request belongs to, as a key for routing: scoped by team, equal for every turn, cheap.

What the client names wins: `prompt_cache_key`, `session_id`, then the session headers of known agents. Else it is a
digest of what stays the same while a conversation grows: the model and all messages before the first answer.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from edge_api.hot.fields import ChatFields

SESSION_HEADERS = (
    b"x-session-id", b"x-dynamo-session-id", b"session-id", b"session_id", b"x-claude-code-agent-id",
    b"x-claude-code-session-id",
)
SAMPLE_BYTES = 1_024
MAX_OPENING_MESSAGES = 16


def session_key(headers: Mapping[bytes, bytes], fields: ChatFields, team_id: str) -> str:
    """The routing key, 32 hex digits whatever the client sent. `headers` has lower-case names."""
    digest = blake2b(team_id.encode(), digest_size=16)
    name = _name(headers, fields)
    for part in (b"named", name) if name else _opening(fields):
        digest.update(b"\n%d\n" % len(part))
        digest.update(part)
    return digest.hexdigest()


def _name(headers: Mapping[bytes, bytes], fields: ChatFields) -> bytes:
    """What the client calls the session, empty if nothing."""
    if name := fields.prompt_cache_key or fields.session_id:
        return name.encode()
    return next((value for header in SESSION_HEADERS if (value := headers.get(header))), b"")


def _opening(fields: ChatFields) -> Iterable[bytes]:
    """The model and the messages before the first answer; of a long one its length, head and tail.

    Inside JSON strings quotes are escaped, so `"assistant"` with bare quotes is the role or a whole string, not prose.
    """
    yield b"opening"
    yield fields.model.encode()
    for raw in fields.messages[:MAX_OPENING_MESSAGES]:
        message = bytes(raw)
        if b'"assistant"' in message:
            return
        yield b"%d" % len(message)
        yield message[:SAMPLE_BYTES]
        yield message[-SAMPLE_BYTES:]
