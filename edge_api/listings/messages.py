"""`GET /v1/models` for clients of the Messages API, who say so with an `anthropic-version` header. Each model is listed
by its own id and, after all of them, by the alias that Claude Code's picker keeps."""

from typing import Any

from control_plane.contracts.clock import utc
from edge_api import errors
from edge_api.errors import Refusal
from edge_api.listings.aliases import alias_of, resolve_alias
from edge_api.routing.table import RoutedModel, RoutingTable

MAX_LIMIT = 1_000


def list_page(table: RoutingTable, limit: str | None, after_id: str | None, before_id: str | None) -> dict[str, Any]:
    """A page after or before an id, all models unless the client asks for fewer.

    Raises:
        Refusal: a limit that is none, or an id that is not listed.
    """
    own = sorted(table.models)
    names = [*own, *map(alias_of, own)]
    count = _limit(limit)
    if before_id is not None:
        end = _index(names, before_id, "before_id")
        start = max(0, end - count)
        page, has_more = names[start:end], start > 0
    else:
        start = 0 if after_id is None else _index(names, after_id, "after_id") + 1
        page, has_more = names[start:start + count], start + count < len(names)
    return {"data": [describe(table.models[resolve_alias(name)], name) for name in page], "has_more": has_more,
            "first_id": page[0] if page else None, "last_id": page[-1] if page else None}


def describe(model: RoutedModel, name: str) -> dict[str, Any]:
    """One model under the name that it was asked for by."""
    return {"type": "model", "id": name, "display_name": model.listing.display_name,
            "created_at": utc(model.listing.created_s).isoformat().replace("+00:00", "Z"), "lifecycle": "active",
            "max_input_tokens": model.context_window, "max_tokens": model.max_output_tokens}


def _limit(text: str | None) -> int:
    if text is None:
        return MAX_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_LIMIT):
        raise Refusal(errors.INVALID_VALUE, f"limit must be a number from 1 to {MAX_LIMIT}", "limit")
    return int(text)


def _index(names: list[str], name: str, param: str) -> int:
    try:
        return names.index(name)
    except ValueError:
        raise Refusal(errors.INVALID_VALUE, f"{param} names no model of the list", param) from None
