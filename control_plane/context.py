"""What every route and loop of the control plane is given: made once at start, never global."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from control_plane.contracts.clock import Clock
from control_plane.contracts.signing import SigningKey
from control_plane.db import Database
from control_plane.identity.cache import Identities
from control_plane.identity.denials import Denials
from control_plane.settings import Settings
from control_plane.usage.partitions import Partitions
from control_plane.wakeup import Wakeups
from control_plane.watch.board import Board


@dataclass(frozen=True, slots=True)
class AppContext:
    """`wakeups` are hints between replicas; `identities` verifies machines; `partitions` knows which exist; `board` is
    what Prometheus is told of the fleet; `denials` were noted in the audit log of late."""

    settings: Settings
    db: Database
    clock: Clock
    signing_key: SigningKey
    wakeups: Wakeups
    identities: Identities
    partitions: Partitions
    board: Board
    denials: Denials = field(default_factory=Denials)


def app_context(request: Request) -> AppContext:
    """The context of the app that answers `request`."""
    context = request.app.state.context
    assert isinstance(context, AppContext)  # noqa: S101
    return context


Context = Annotated[AppContext, Depends(app_context)]
