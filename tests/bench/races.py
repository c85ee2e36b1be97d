"""How often two drains of the last datacenters, ordered in the same moment, both start: never."""

import asyncio
from collections import Counter

from sqlalchemy import text

from control_plane.contracts.operations import OperationKind, OperationRequest
from control_plane.db import Database
from control_plane.operations import service
from tests import throwaway
from tests.bench.harness import CLOCK, Figures
from tests.integration.control_plane.simulated import EAST, WEST, running_world

NAME = "races"
SUMMARY = "concurrent drains of the last datacenters, 200 races each (--large: 10,000 each): both start (0)"
OPTIONS = ("--large",)

RACES, LARGE = 200, 10_000
THIRD = "ap-south-1"


def main(large: bool = False) -> Figures:
    """Races two datacenters for the last place, then three of which one may go."""
    races = LARGE if large else RACES
    began_s = CLOCK.monotonic_s()
    two = asyncio.run(raced((WEST, EAST), races))
    three = asyncio.run(raced((WEST, EAST, THIRD), races))
    took_s = CLOCK.monotonic_s() - began_s
    for places, started in ((2, two), (3, three)):
        print(f"{races} races of {places} datacenters: " + ", ".join(
            f"{count} x {number} started" for number, count in sorted(started.items())))
    wrong = sum(count for started in (two, three) for number, count in started.items() if number > 1)
    never = sum(started[0] for started in (two, three))
    print(f"more than one started  {wrong}\nnone started           {never}")
    return {"races": 2 * races, "more_than_one": wrong, "none": never, "race_ms": round(took_s * 500 / races, 1),
            "within": not wrong and not never}


async def raced(places: tuple[str, ...], races: int) -> Counter[int]:
    """How many of the drains of all `places` at once started, counted over the races."""
    started: Counter[int] = Counter()
    with throwaway.postgres_server() as server, throwaway.database(server) as url, throwaway.directory() as home:
        async with running_world(url, home, *places, edges=0) as world:
            db = world.replica.context.db
            for _ in range(races):
                await forget(db)
                started[sum(await asyncio.gather(*[starts(db, place) for place in places]))] += 1
    return started


async def starts(db: Database, datacenter: str) -> bool:
    """Whether a drain of the datacenter starts."""
    asked = OperationRequest(kind=OperationKind.DRAIN, datacenter=datacenter, reason="race")
    async with db.begin() as session:
        return (await service.create(session, asked, "operator:olga", None)).refusal is None


async def forget(db: Database) -> None:
    """All datacenters as they were, without operations; leases live."""
    async with db.begin() as session:
        await session.execute(text("SELECT id FROM datacenter ORDER BY id FOR UPDATE"))
        for table in ("command", "operation_step", "operation_claim", "operation"):
            await session.execute(text(f"DELETE FROM {table}"))  # noqa: S608 - constants
        await session.execute(text("UPDATE datacenter SET traffic_state = 'active', ramp_percent = 0"))
        await session.execute(text("UPDATE agent_lease SET expires_at = now() + interval '1 h'"))
