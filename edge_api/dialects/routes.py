"""The paths that the protocol serves itself, by POST, and what is spoken on each."""

from collections.abc import Mapping

from edge_api.dialects.base import Dialect
from edge_api.dialects.messages import COUNT_TOKENS, MESSAGES
from edge_api.dialects.plain import CHAT, COMPLETIONS, EMBEDDINGS
from edge_api.dialects.responses import INPUT_TOKENS, RESPONSES

PREFIXES = ("/v1", "/api/v1")
_ROUTES: Mapping[str, Dialect] = {
    "/chat/completions": CHAT,
    "/completions": COMPLETIONS,
    "/embeddings": EMBEDDINGS,
    "/messages": MESSAGES,
    "/messages/count_tokens": COUNT_TOKENS,
    "/responses": RESPONSES,
    "/responses/input_tokens": INPUT_TOKENS,
}
HOT_ROUTES: Mapping[bytes, Dialect] = {
    f"{prefix}{path}".encode(): dialect for prefix in PREFIXES for path, dialect in _ROUTES.items()}
