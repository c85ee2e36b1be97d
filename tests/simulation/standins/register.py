"""Which function stands for which query."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

STANDINS: dict[tuple[ModuleType, str], Callable[..., Any]] = {}


def of(module: ModuleType) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function stands for the one of its name in `module`; a trailing underscore tells two of one name apart."""
    def note(stands: Callable[..., Any]) -> Callable[..., Any]:
        STANDINS[module, stands.__name__.rstrip("_")] = stands
        return stands

    return note
