"""Pages of a list. A cursor is the key of the last item shown; read `limit + 1` items to know whether more come."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Query

from control_plane.contracts.operator import Page

Item = TypeVar("Item")

MAX_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Asked:
    """Which page is asked for."""

    limit: int = 100
    cursor: str | None = None


def asked(limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 100,
          cursor: Annotated[str | None, Query(max_length=200)] = None) -> Asked:
    """The page that the query string asks for."""
    return Asked(limit, cursor)


Paged = Annotated[Asked, Depends(asked)]


def page(items: Sequence[Item], asked: Asked, key: Callable[[Item], str]) -> Page[Item]:
    """The first `limit` of `items`, and a cursor if there are more."""
    shown = list(items[:asked.limit])
    return Page(data=shown, next_cursor=key(shown[-1]) if len(items) > asked.limit else None)
