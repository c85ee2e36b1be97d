"""One of three datacenters swallows everything: all of its processes stand still, connections stay open, nothing comes
back and nothing is refused."""

import time

from tests.chaos import checker
from tests.chaos.checker import Property
from tests.chaos.history import Fault, History, Verdict
from tests.chaos.scenarios.scenario import Scenario, Size
from tests.chaos.victims import HANG
from tests.chaos.world import CLOCK, World

PER_S = 60.0
BEFORE_S, DARK_S, AFTER_S = 4.0, 15.0, 4.0
GRACE_S = 2.0
KINDS = ("frontend", "nats", "prefill worker", "decode worker", "grammar", "agent")


def run(world: World, size: Size) -> list[Property]:
    """Darkness for a while, then light."""
    del size
    world.prepare()
    datacenter = world.datacenters[0]
    with world.load(per_s=PER_S, tries=1) as load:
        time.sleep(BEFORE_S)
        dark_s = CLOCK.time_s()
        swallow(world, datacenter)
        while CLOCK.time_s() < dark_s + DARK_S:
            world.report.now(f"{datacenter} swallows everything; {load.words()}")
            time.sleep(0.2)
        light_s = CLOCK.time_s()
        world.hunter.release_all()
        world.journal.write(Fault(HANG, datacenter, dark_s, light_s))
        time.sleep(AFTER_S)
    seen = world.history()
    found, windows = world.collect(seen), world.windows(seen)
    return [*new_requests(seen, dark_s), *resumed(seen, found.records, dark_s, light_s), *checker.traffic(seen),
            *checker.clients(seen, windows), *checker.usage(seen, found, windows), *checker.rest(found)]


def swallow(world: World, datacenter: str) -> None:
    """Stops every process of the datacenter, its frontend first."""
    for kind in KINDS:
        for victim in world.hunter.of(kind, datacenter):
            world.hunter.stop(victim)


def new_requests(seen: History, dark_s: float) -> list[Property]:
    """Errors on what began later than the grace, and how long such a request had to wait for its first byte."""
    later = [one for one in seen.tries if one.began_s > dark_s + GRACE_S]
    early = [one for one in seen.tries if dark_s <= one.began_s <= dark_s + GRACE_S]
    waits = [one.first_s - one.began_s for one in later if one.first_s is not None]
    return [
        checker.none_of(f"errors on requests begun later than {GRACE_S:g} s after it went dark",
                        [checker.told(one) for one in later if one.verdict is not Verdict.FINISHED]),
        Property(f"errors on requests begun in those {GRACE_S:g} s",
                 f"{sum(one.verdict is not Verdict.FINISHED for one in early)} of {len(early)}"),
        Property("the longest wait of a later one for its first byte", f"{max(waits, default=0.0):.2f} s")]


def resumed(seen: History, records: list[checker.Record], dark_s: float, light_s: float) -> list[Property]:
    """What was open in the dark datacenter and had begun to answer: how much of it went on elsewhere, whole."""
    open_there = {one.request_id: one for one in seen.tries if one.request_id and one.began_s < dark_s < one.ended_s}
    moved = {record.request_id for record in records if record.resumes and record.opened_s < light_s}
    went_on = [one for id, one in open_there.items() if id in moved]
    whole = sum(one.verdict is Verdict.FINISHED for one in went_on)
    return [Property("streams that broke there and were resumed, whole",
                     f"{whole} of {len(went_on)}", "all", whole == len(went_on))]


SCENARIO = Scenario("black-hole", "one of three datacenters swallows everything it is sent", run)
