"""How soon a dead datacenter is routed around and on record: real edges, a real control plane, three datacenters.

The frontends are scripted: what is measured is what edges and control plane take, with the times of production.
"""

import asyncio
from pathlib import Path

import structlog

from tests import throwaway
from tests.bench.harness import CLOCK, Figures, verdict
from tests.integration.edge_api.watched import PLACES, Watched, watched

NAME = "failover"
SUMMARY = "a datacenter dies, another hangs: seconds until no edge asks it (2 s), until it is on record (35 s); errors"

PER_S = 10.0
BEFORE_S, AFTER_S = 5.0, 3.0
QUORUM_S = 30.0
ROUTED_LIMIT_S, RECORD_LIMIT_S = 2.0, 35.0
DEADLINE_S = 90.0
FAILED = ("SELECT max(extract(epoch FROM opened_at)) FROM usage_record "
          "WHERE attempts @> CAST(:dead AS jsonb) AND opened_at > to_timestamp(:died)")
BEGUN = "SELECT extract(epoch FROM created_at) FROM operation WHERE datacenter_id = :dead AND kind = 'failover'"


def main() -> Figures:
    """Both deaths, each in a house of its own."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    figures: Figures = {}
    with throwaway.postgres_server() as server:
        for way in ("dies", "hangs"):
            with throwaway.database(server) as url, throwaway.directory() as place:
                figures |= asyncio.run(one_death(url, place, way))
    return figures


async def one_death(url: str, place: Path, way: str) -> Figures:
    """One datacenter's end under load."""
    async with watched(url, place, failover_after_s=QUORUM_S) as house:
        stop = asyncio.Event()
        load = asyncio.create_task(house.ask_steadily(PER_S, stop))
        await asyncio.sleep(BEFORE_S)
        died_s, died_at_s = asyncio.get_running_loop().time(), CLOCK.time_s()
        await end(house, way)
        record_s = await begun(house) - died_at_s
        await asyncio.sleep(AFTER_S)
        stop.set()
        await load
        await stored(house)
        failed = (await house.rows(FAILED, dead=f'[{{"datacenter_id": "{PLACES[0]}", "failed": true}}]',
                                   died=died_at_s))[0][0]
        routed_s = float(failed) - died_at_s if failed else 0.0
        late = sum(one.status != 200 for one in house.sent if one.at_s > died_s + ROUTED_LIMIT_S)
        early = sum(one.status != 200 for one in house.sent if one.at_s <= died_s + ROUTED_LIMIT_S)
    print(f"it {way}: asked last after {routed_s:.2f} s {verdict(routed_s, ROUTED_LIMIT_S)} s; on record after "
          f"{record_s:.1f} s {verdict(record_s, RECORD_LIMIT_S)} s; {early} errors before, {late} after 2 s, "
          f"of {len(house.sent)} requests")
    return {f"{way}_routed_s": round(routed_s, 2), f"{way}_record_s": round(record_s, 2), f"{way}_errors": early + late,
            f"{way}_requests": len(house.sent)}


async def end(house: Watched, way: str) -> None:
    """The datacenter refuses everything, or takes everything and answers nothing."""
    if way == "dies":
        await house.places[PLACES[0]].die()
    else:
        house.places[PLACES[0]].hang()


async def begun(house: Watched) -> float:
    """When the failover began, Unix seconds of the database's clock."""
    async with asyncio.timeout(DEADLINE_S):
        while not (found := await house.rows(BEGUN, dead=PLACES[0])):  # noqa: ASYNC110 - what is waited for is a row
            await asyncio.sleep(0.1)
    return float(found[0][0])


async def stored(house: Watched) -> None:
    """Until every answered request has its record."""
    answered = sum(one.status == 200 for one in house.sent)
    async with asyncio.timeout(DEADLINE_S):
        while (await house.rows("SELECT count(*) FROM usage_record"))[0][0] < answered:  # noqa: ASYNC110 - a row
            await asyncio.sleep(0.2)
