"""The planner as leased work: every replica asks for its turn, one at a time gets it."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from control_plane.capacity import planning, repository
from control_plane.capacity.service import CAPACITY_CHANNEL
from control_plane.context import AppContext

LEASE_S = 30.0
ITEM = "planner"


class CapacityWork:
    """One item: the planner's next turn. The lease keeps two replicas from planning at once, and the time of the last
    turn keeps them from planning too often."""

    name: ClassVar[str] = "capacity"
    channel: ClassVar[str] = CAPACITY_CHANNEL

    def __init__(self, context: AppContext) -> None:
        self._context = context

    async def lease(self, token: str) -> Sequence[str]:
        settings = self._context.settings
        async with self._context.db.begin() as session:
            is_due = await repository.lease(
                session, token, LEASE_S, settings.capacity_interval_s, settings.capacity_mode)
        return [ITEM] if is_due else []

    async def advance(self, item: str, token: str) -> bool:
        """One turn; the next is due after the interval only."""
        await self._context.db.run(partial(
            planning.turn, key=self._context.signing_key, settings=self._context.settings, token=token))
        return False

    async def release(self, item: str, token: str) -> None:
        async with self._context.db.begin() as session:
            await repository.release(session, token)
