"""Lists as commands print them: as many items as were asked for, from as many pages as that takes."""

from typing import Annotated, Generic, TypeVar

import typer
from pydantic import BaseModel

Item = TypeVar("Item")

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="How many at most.")]


class Listing(BaseModel, Generic[Item]):
    """What `-o json` prints of a list."""

    data: list[Item]
