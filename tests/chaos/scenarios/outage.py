"""The control plane, Postgres and Valkey are away together: clients go on as before, and no usage is lost."""

import os
import signal
import time

from tests.chaos import checker
from tests.chaos.checker import Property
from tests.chaos.history import Fault, History, Try, Verdict
from tests.chaos.scenarios.scenario import Scenario, Size
from tests.chaos.victims import KILL
from tests.chaos.world import CLOCK, World

PER_S = 40.0
BEFORE_S, AFTER_S = 8.0, 5.0
KINDS = ("control plane", "celery worker", "postgres", "valkey")


def run(world: World, size: Size) -> list[Property]:
    """Whoever would start them again stands still meanwhile."""
    world.prepare()
    supervisor = world.facts["pids"]["up"]
    with world.load(per_s=PER_S, tries=1) as load:
        time.sleep(BEFORE_S)
        os.kill(supervisor, signal.SIGSTOP)
        try:
            away_s = CLOCK.time_s()
            for kind in KINDS:
                for victim in world.hunter.of(kind):
                    world.kill(victim)
            while CLOCK.time_s() < away_s + size.outage_s:
                left_s = away_s + size.outage_s - CLOCK.time_s()
                world.report.now(f"control plane, Postgres and Valkey away, {left_s:.0f} s more; {load.words()}")
                time.sleep(0.2)
        finally:
            os.kill(supervisor, signal.SIGCONT)
        back_s = CLOCK.time_s()
        world.journal.write(Fault(KILL, "control plane, Postgres, Valkey", away_s, back_s))
        time.sleep(AFTER_S)
    seen = world.history()
    found, windows = world.collect(seen), world.windows(seen)
    return [*rates(seen, away_s, back_s), *checker.traffic(seen), *checker.clients(seen, windows),
            *checker.usage(seen, found, windows), *checker.rest(found)]


def rates(seen: History, away_s: float, back_s: float) -> list[Property]:
    """Success before and meanwhile, in per cent of the requests begun in that time."""
    before = [one for one in seen.tries if one.began_s < away_s]
    meanwhile = [one for one in seen.tries if away_s <= one.began_s < back_s]
    change = success(meanwhile) - success(before)
    return [Property("seconds away", f"{back_s - away_s:.0f}"),
            Property("success rate before and meanwhile", f"{success(before):.3f} % and {success(meanwhile):.3f} %"),
            Property("change of the success rate", f"{change:+.3f} points", "0", change >= 0.0 and bool(meanwhile))]


def success(tries: list[Try]) -> float:
    """In per cent."""
    return 100.0 * sum(one.verdict is Verdict.FINISHED for one in tries) / len(tries) if tries else 0.0


SCENARIO = Scenario("outage", "control plane, Postgres and Valkey away together", run)
