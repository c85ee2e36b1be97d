"""What was typed, as a document that the operator API takes."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from control_plane.cli.errors import UsageFault

Typed = TypeVar("Typed", bound=BaseModel)


def typed(document: type[Typed], **values: Any) -> Typed:
    """The document with these values.

    Raises:
        UsageFault: one of them is none that the API takes; the message names it.
    """
    try:
        return document(**values)
    except ValidationError as error:
        fault = error.errors()[0]
        said = fault["msg"].removeprefix("Value error, ")
        name = f"{str(fault['loc'][0]).removesuffix('_s')}: " if fault["loc"] else ""
        raise UsageFault(f"{name}{said[:1].lower()}{said[1:]}") from error
