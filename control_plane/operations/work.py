"""Operations as leased work: what the reconcile runner fetches and moves on."""

from collections.abc import Sequence
from typing import ClassVar

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.context import AppContext
from control_plane.operations import repository
from control_plane.operations.advance import advance
from control_plane.operations.commands import OPERATIONS_CHANNEL
from control_plane.operations.pacing import pace_of

LEASE_S = 5.0
MAX_LEASED = 16


class OperationsWork:
    """The open operations. Any replica may move any of them on; a lease keeps two from doing it at once."""

    name: ClassVar[str] = "operations"
    channel: ClassVar[str] = OPERATIONS_CHANNEL

    def __init__(self, context: AppContext) -> None:
        self._context, self._pace = context, pace_of(context.settings)

    async def lease(self, token: str) -> Sequence[str]:
        async with self._context.db.begin() as session:
            if not await repository.has_open(session):
                return []
            return await repository.lease_open(session, token, LEASE_S, MAX_LEASED)

    async def advance(self, item: str, token: str) -> bool:
        async def look(session: AsyncSession) -> bool:
            return await advance(session, self._context.signing_key, item, token, self._pace)

        return await self._context.db.run(look)

    async def release(self, item: str, token: str) -> None:
        async with self._context.db.begin() as session:
            await repository.release(session, item, token)
