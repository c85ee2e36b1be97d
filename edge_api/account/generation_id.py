"""The id of a generation: the request's own, under whichever of its names a client has kept it."""

from uuid import UUID

PREFIXES = ("gen_", "gen-", "req_", "req-", "msg_", "resp_")
UUID7 = 7


def parse_generation_id(text: str) -> UUID | None:
    """The request's id in `gen_…`, `req_…`, in the name of a message or a response, or alone, as hex or with dashes;
    none if it is no id of ours."""
    for prefix in PREFIXES:
        text = text.removeprefix(prefix)
    if not 32 <= len(text) <= 36:
        return None
    try:
        parsed = UUID(text)
    except ValueError:
        return None
    return parsed if parsed.version == UUID7 else None


def generation_id(request_id: UUID) -> str:
    """The name that answers carry."""
    return f"gen_{request_id.hex}"
