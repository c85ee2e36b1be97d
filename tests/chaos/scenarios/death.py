"""A datacenter dies whole and stays dead: how soon every edge goes around it, and how soon that is on record."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.chaos import checker
from tests.chaos.checker import Property
from tests.chaos.evidence import Record
from tests.chaos.history import Fault
from tests.chaos.scenarios.scenario import Scenario, Size
from tests.chaos.victims import KILL
from tests.chaos.world import CLOCK, Refused, World

PER_S = 60.0
BEFORE_S, AFTER_S = 4.0, 3.0
ROUTED_WITHIN_S, RECORDED_WITHIN_S = 2.0, 35.0
LEAST_DEAD_S = 8.0
KINDS = ("frontend", "grammar", "prefill worker", "decode worker", "nats")


def run(world: World, size: Size) -> list[Property]:
    """Its agent stands still, so that nothing there comes back before it shall."""
    del size
    world.prepare()
    datacenter = world.datacenters[0]
    with world.load(per_s=PER_S, tries=1) as load:
        time.sleep(BEFORE_S)
        dead_s = CLOCK.time_s()
        for agent in world.hunter.of("agent", datacenter):
            world.hunter.stop(agent)
        for kind in KINDS:
            for victim in world.hunter.of(kind, datacenter):
                world.kill(victim)
        recorded_s = watch(world, datacenter, dead_s, lambda: f"{datacenter} is dead; {load.words()}")
        alive_s = CLOCK.time_s()
        world.hunter.release_all()
        world.journal.write(Fault(KILL, datacenter, dead_s, alive_s))
        time.sleep(AFTER_S)
    seen = world.history()
    found, windows = world.collect(seen), world.windows(seen)
    return [*around(found.records, datacenter, dead_s, alive_s), recorded(recorded_s), *checker.traffic(seen),
            *checker.clients(seen, windows), *checker.usage(seen, found, windows), *checker.operations(found),
            *checker.rest(found)]


def watch(world: World, datacenter: str, dead_s: float, words: Callable[[], str]) -> float | None:
    """Seconds until a failover of the datacenter was on record; none if it was not within its time."""
    while (past_s := CLOCK.time_s() - dead_s) < RECORDED_WITHIN_S + 5.0:
        world.report.now(words())
        if past_s > LEAST_DEAD_S and is_recorded(world, datacenter):
            return first_failover_s(world, datacenter, dead_s)
        time.sleep(0.25)
    return None


def failovers(world: World, datacenter: str) -> list[dict[str, Any]]:
    """The operations that took its traffic away by themselves."""
    try:
        page = world.operate("GET", "/operator/v1/operations?limit=20", patience_s=3.0)["data"]
    except Refused:
        return []
    return [one for one in page if one["kind"] == "failover" and one["datacenter"] == datacenter]


def is_recorded(world: World, datacenter: str) -> bool:
    return bool(failovers(world, datacenter))


def first_failover_s(world: World, datacenter: str, dead_s: float) -> float:
    """When it was decided, by the control plane's own clock, which is this machine's."""
    return min(timestamp(one["created_at"]) for one in failovers(world, datacenter)) - dead_s


def around(records: list[Record], datacenter: str, dead_s: float, alive_s: float) -> list[Property]:
    """Until when each edge still began something there: the openings of records whose first attempt was sent to it."""
    last: dict[str, float] = {}
    for record in records:
        sent_there = record.attempts and record.attempts[0][0] == datacenter
        if dead_s <= record.opened_s < alive_s:
            last.setdefault(record.edge, 0.0)
            if sent_there:
                last[record.edge] = max(last[record.edge], record.opened_s - dead_s)
    told = ", ".join(f"{seconds:.2f} s" for seconds in sorted(last.values()))
    return [Property("edges go around it after", told or "nothing was seen", f"≤ {ROUTED_WITHIN_S:g} s",
                     bool(last) and max(last.values()) <= ROUTED_WITHIN_S)]


def recorded(seconds: float | None) -> Property:
    """The automatic failover."""
    return Property("the failover is on record after", "never" if seconds is None else f"{seconds:.1f} s",
                    f"≤ {RECORDED_WITHIN_S:g} s", seconds is not None and seconds <= RECORDED_WITHIN_S)


def timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


SCENARIO = Scenario("death", "a datacenter dies whole: routed around, and failed over on record", run)
