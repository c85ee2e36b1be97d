"""Puts a simulated world in the place of what is outside: chance, the database, the disk and the log. The product's
code is not touched; what it imports at its seams is, for as long as the block lasts."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from random import Random
from typing import Any
from uuid import UUID

import structlog

from control_plane import db
from control_plane.contracts import ids
from edge_api.metering import outbox, recovery, shipped, shipper
from edge_api.snapshot import client, store
from tests.simulation.database import Session
from tests.simulation.disk import Os, Place
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import EPOCH_S
from tests.simulation.standins import STANDINS
from tests.simulation.story import Story


class Chance:
    """What `contracts.ids` draws, from one seeded source."""

    def __init__(self, loop: VirtualLoop, chance: Random) -> None:
        self._loop, self._chance = loop, chance

    def uuid7(self, time_s: float | None = None) -> UUID:
        now_ms = int((EPOCH_S + self._loop.now_s if time_s is None else time_s) * 1000)
        noise = self._chance.getrandbits(80) & ids._NOISE | ids._VERSION_AND_VARIANT
        return UUID(int=now_ms << 80 | noise)

    def nonce(self) -> str:
        return f"{self._chance.getrandbits(64):016x}"

    def jitter(self, base_s: float, share: float = 0.2) -> float:
        return base_s * (1 + share * (2 * self._chance.random() - 1))


@contextmanager
def installed(loop: VirtualLoop, chance: Random, story: Story) -> Iterator[None]:
    """The product runs in the simulated world inside this block."""
    drawn = Chance(loop, chance)
    changes: list[tuple[Any, str, Any]] = [
        (ids, "uuid7", drawn.uuid7), (ids, "nonce", drawn.nonce), (ids, "jitter", drawn.jitter)]
    changes += [(module, name, stands) for (module, name), stands in STANDINS.items()]
    for real, stands in ((db.notify, notify), (db.database_time, database_time)):
        changes += [(module, real.__name__, stands) for name, module in sorted(sys.modules.items())
                    if name.startswith("control_plane") and getattr(module, real.__name__, None) is real]
    simulated_os = Os()
    changes += [(module, "os", simulated_os) for module in (outbox, recovery, shipped, store)]
    changes += [(module, "write_private", Place.write_whole) for module in (recovery, shipper, store)]
    changes += [(shipper, "TICK_S", 1.0), (client, "LOOK_S", 1.0)]  # so that idle waiting costs less
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    logging = structlog.get_config()
    structlog.configure(processors=[story.log], cache_logger_on_first_use=False)
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)
        structlog.configure(**logging)


async def notify(session: Session, channel: str) -> None:
    """A hint, at the commit."""
    session.hints.append(channel)


async def database_time(session: Session) -> datetime:
    """When the transaction began."""
    return session.began
