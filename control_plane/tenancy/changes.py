"""Tells edges that what binds a team's keys has changed: limits, models, regions, budgets, how it pays.

A team holds the number of its last change and no more, so that a hundred changes are one, and whoever was away asks
for each team once. Other slices call `note_change` in the transaction of the change itself.
"""

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts.keys import TeamChange
from control_plane.db import notify
from control_plane.tenancy import repository

CHANNEL = "team_changes"


async def note_change(session: AsyncSession, team_id: str) -> None:
    """Makes every edge look the team's keys up again, within 5 s. Among the last locks that a transaction takes: the
    team's row, then the head that revocations share."""
    await repository.mark_changed(session, team_id)
    await notify(session, CHANNEL)


async def changes_after(session: AsyncSession, seq: int, limit: int) -> list[TeamChange]:
    """The next teams whose last change an edge has not seen, in commit order."""
    return [TeamChange(seq=row.changed_seq, team_id=row.id)
            for row in await repository.changed_teams(session, seq, limit)]
