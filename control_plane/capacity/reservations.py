"""Reserved capacity as the planner and the safety rules count it: who sells it answers through `Reservations`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncSession


@dataclass(frozen=True, slots=True)
class Reservation:
    """Concurrent requests of a model that somebody paid for, in any of `regions`; no region: anywhere."""

    id: str
    model_id: str
    requests: int
    regions: frozenset[str] = frozenset()


class Reservations(Protocol):
    """Answers what is reserved. It is asked inside the transaction that changes capacity, so it only reads."""

    async def active(self, session: AsyncSession, at: datetime) -> Sequence[Reservation]:
        """Every reservation that capacity must be there for at `at`, in a fixed order."""
        ...


class NothingReserved:
    """The answer while nobody sells reserved capacity."""

    async def active(self, session: AsyncSession, at: datetime) -> Sequence[Reservation]:
        return ()


SOLD: Reservations = NothingReserved()
"""Who answers in this release."""
