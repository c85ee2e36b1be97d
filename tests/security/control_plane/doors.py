"""Every route of the control plane, and the guards at its door, read from the app itself."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts

from control_plane.app import build_app
from control_plane.identity import guards
from control_plane.settings import Settings
from control_plane.tenancy.guards import team_reader

GUARDS: dict[Callable[..., Any], str] = {
    guards.agent: "agent", guards.edge: "edge", guards.reader: "read", guards.operator: "operate",
    guards.admin: "admin", team_reader: "team"}
MACHINES, SCOPES = ("agent", "edge"), ("read", "operate", "admin")


@dataclass(frozen=True)
class Door:
    """A route: its guards, and an address that leads to it."""

    method: str
    path: str
    guards: tuple[str, ...]

    @property
    def address(self) -> str:
        return re.sub(r"\{[^}]+\}", "x", self.path)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def doors(*kinds: str) -> list[Door]:
    """All doors, or those with one of these guards."""
    app = build_app(Settings(
        database_url="postgresql+asyncpg://nowhere/none", signing_key_file=Path("unused.key")))
    found = [
        Door(method, str(route.path), tuple(_guards(getattr(route, "dependant", None))))
        for route in iter_route_contexts(app.routes) for method in sorted(route.methods or ()) if method != "HEAD"]
    return [door for door in found if not kinds or set(kinds) & set(door.guards)]


def _guards(dependant: Dependant | None) -> Iterator[str]:
    if dependant is None:
        return
    if dependant.call in GUARDS:
        yield GUARDS[dependant.call]
    for inner in dependant.dependencies:
        yield from _guards(inner)
