"""Where clients put their keys: OpenAI's in `Authorization: Bearer`, Anthropic's there or in `x-api-key`."""

from edge_api import errors
from edge_api.errors import Refusal

BEARER = b"bearer "


def secret_of(authorization: bytes | None, api_key: bytes) -> bytes:
    """The secret in these headers; `authorization` is none if there is no such header, and wins if there is.

    Raises:
        Refusal: there is no secret.
    """
    secret = api_key if authorization is None else authorization[len(BEARER):].strip()
    if not secret or (authorization is not None and authorization[:len(BEARER)].lower() != BEARER):
        raise Refusal(errors.INVALID_API_KEY, "no API key: send it as 'Authorization: Bearer <key>'")
    return secret
