"""kill -9 of random processes under load, sometimes two at once, sometimes one that hangs instead, while an operator
drains and restores datacenters all the time."""

import random
import threading
import time
from collections import Counter

from tests.chaos import checker
from tests.chaos.checker import Property
from tests.chaos.history import History
from tests.chaos.scenarios.scenario import Scenario, Size
from tests.chaos.victims import HANG, KILL
from tests.chaos.world import Running, World

LEAST_PER_S = 50.0
BEFORE_S, AFTER_S = 3.0, 3.0
PAUSE_S = (0.4, 2.0)
HANG_S = (0.5, 4.0)
HANGS, TWINS = 0.12, 0.15


def run(world: World, size: Size) -> list[Property]:
    """Kills until `size.kills` died."""
    world.prepare()
    operator = Operator(world)
    with world.load(per_s=size.per_s) as load:
        operator.start()
        time.sleep(BEFORE_S)
        _kill(world, size.kills, load)
        time.sleep(AFTER_S)
        operator.stop()
    seen = world.history()
    found, windows = world.collect(seen), world.windows(seen)
    return [*killed(seen), *checker.traffic(seen, LEAST_PER_S), *checker.clients(seen, windows, strict=False),
            *checker.usage(seen, found, windows), *checker.operations(found), *checker.rest(found)]


def killed(seen: History) -> list[Property]:
    """What was done, by class."""
    found = []
    for kind, words in ((KILL, "processes killed (kill -9)"), (HANG, "processes stopped for a while")):
        victims = Counter(one.victim.rpartition(" ")[0] or one.victim for one in seen.faults if one.kind == kind)
        classes = ", ".join(f"{count} {name}" for name, count in victims.most_common())
        found.append(Property(words, f"{sum(victims.values()):,}: {classes}"))
    return found


def _kill(world: World, kills: int, load: Running) -> None:
    done = 0
    while done < kills and not load.is_over:
        time.sleep(world.chance.uniform(*PAUSE_S))
        if world.chance.random() < HANGS:
            for victim in world.hunter.choose():
                world.hunter.hang(victim, world.chance.uniform(*HANG_S))
            continue
        for victim in world.hunter.choose(min(kills - done, 2 if world.chance.random() < TWINS else 1)):
            done += world.kill(victim)
            world.report.now(f"{done} of {kills} killed, now {victim.name}; {load.words()}")


class Operator(threading.Thread):
    """Drains one datacenter after the other and brings it back, whatever happens around him."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self._world, self._ends = world, threading.Event()
        self._chance = random.Random(world.seed + 1)

    def run(self) -> None:
        while not self._ends.wait(self._chance.uniform(1.0, 4.0)):
            datacenter = self._chance.choice(self._world.datacenters)
            self._world.move("drain", datacenter)
            if not self._ends.wait(self._chance.uniform(0.5, 2.0)):
                self._world.move("restore", datacenter)

    def stop(self) -> None:
        """Waits for the operation that is under way."""
        self._ends.set()
        self.join()


SCENARIO = Scenario(
    "kills", "kill -9 of random processes while datacenters are drained and restored", run)
